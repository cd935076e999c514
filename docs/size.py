"""Prints lines and files by package, and the largest file: growth is seen when it happens."""

from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
KINDS = {".py", ".cpp", ".h", ".js", ".css", ".html"}


def main() -> None:
    for name in ("src/ownwords", "tests"):
        top, lines, files = ROOT / name, Counter[str](), Counter[str]()
        largest = (0, "")
        for path in sorted(top.rglob("*")):
            if path.suffix in KINDS:
                count = path.read_text("utf-8").count("\n")
                part = path.relative_to(top).parts[0]
                lines[part] += count
                files[part] += 1
                largest = max(largest, (count, str(path.relative_to(ROOT))))
        packages = [part for part in lines if (top / part).is_dir()]
        print(f"{name}: {sum(lines.values()):,} lines in {sum(files.values())} files")
        print("  " + ", ".join(f"{part} {lines[part]:,}/{files[part]}" for part in packages))
        print(f"  largest: {largest[1]}, {largest[0]:,} lines")


if __name__ == "__main__":
    main()
