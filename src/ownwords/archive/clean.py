"""Text repair: encoding damage mended, what the eye cannot see taken out."""


def repair(text: str) -> tuple[str, dict[str, int]]:
    """The text as its author meant it, and how much was mended or taken out, by reason."""
    raise NotImplementedError
