"""A model and its tokenizer together, as the Python face hands them out."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch

from ownwords.models import bundle
from ownwords.models.family import CausalLM
from ownwords.tokenizers import tokenizer
from ownwords.tokenizers.tokenizer import Tokenizer


class Model:
    """A loaded model. Made by `ownwords.load`."""

    def __init__(self, network: CausalLM, tokenizer: Tokenizer) -> None:
        self.network = network.eval()
        self.tokenizer = tokenizer

    @classmethod
    def load(cls, folder: Path, *, device: str = "cpu") -> "Model":
        """The model of a directory, with the tokenizer it was saved with and no other."""
        found = bundle.load(folder, device=device)
        its_own = tokenizer.from_files(found.tokenizer_files)
        found.check_tokenizer(its_own)
        return cls(found.model, its_own)

    def logits(self, ids: Sequence[int]) -> npt.NDArray[np.float32]:
        """For each of the ids the scores of what follows it, [ids, vocabulary].

        Raises OwnwordsError for ids outside the vocabulary and for more than the context holds.
        """
        device = self.network.embedding.weight.device
        with torch.inference_mode():
            ids_BT = torch.tensor([list(ids)], dtype=torch.int64, device=device)
            logits_BTV = self.network.logits(self.network(ids_BT))
        array: npt.NDArray[np.float32] = logits_BTV[0].float().cpu().numpy()
        return array
