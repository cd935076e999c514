"""The options that the verbs have in common which let a model write."""

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from ownwords.inference.engine import WeightFormat

ModelFolder = Annotated[
    Path | None,
    Parameter(
        help="A model directory, or a workspace that holds one. [default: that of the only"
        " NAME.ownwords here]"
    ),
]
Temperature = Annotated[
    float, Parameter(help="Lower is safer, higher is bolder; 0 takes the likeliest each time.")
]
Device = Annotated[
    str, Parameter(help="cpu, cuda, mps, xpu; auto is cuda where there is one, or cpu.")
]
RoundedTo = Annotated[
    WeightFormat, Parameter(help="Use the weights as: int8 and int4 are smaller and faster.")
]
Threads = Annotated[
    int | None, Parameter(help="Compute with so many. [default: a thread for each core]")
]
Quote = Annotated[
    bool,
    Parameter(
        negative=(),
        show_default=False,
        help="Allow long passages of the texts learned from, word for word. [default: no]",
    ),
]
