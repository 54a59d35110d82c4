"""Licence and citation of the images and weights of a study, for its documents.

The registry has those of the official archives; here are those of the demo's data.
"""

from __future__ import annotations

from dataclasses import dataclass

from twf.data import registry
from twf.study import params


@dataclass(frozen=True)
class Origin:
    """Where a data set or published weights come from; texts are empty where it is unknown."""

    title: str
    licence: str = ""
    citation: str = ""
    homepage: str = ""
    entry: registry.ImagesEntry | registry.WeightsEntry | None = None  # in the registry


_INCLUDED = {
    "digits": Origin(
        "Optical Recognition of Handwritten Digits: its 1,797 test images, as scikit-learn has "
        "them",
        licence="CC BY 4.0",
        citation="""@misc{alpaydin1998optical,
  author = {Alpaydin, E. and Kaynak, C.},
  title = {Optical Recognition of Handwritten Digits},
  publisher = {UCI Machine Learning Repository},
  year = {1998},
  doi = {10.24432/C50P49}
}""",
        homepage="https://archive.ics.uci.edu/dataset/80/optical+recognition+of+handwritten+digits",
    ),
    "letters": Origin(
        "Letters that this software draws",
        licence="drawn from fonts that matplotlib ships: DejaVu (Bitstream Vera's licence), STIX "
        "(SIL Open Font License 1.1), Computer Modern (BaKoMa's licence)",
    ),
    "textures": Origin(
        "Textures that this software draws", licence="this software's: nothing else is in them"
    ),
}


def of_dataset(dataset: params.Dataset) -> Origin:
    """The origin of a data set of params.yaml. Raises `UserError` where its archive is unknown."""
    if dataset.reader == "official":
        return _in_registry(dataset.archive)
    if dataset.reader == "archive":
        return Origin(f"Images of the user's own: {dataset.file}")
    return _INCLUDED[dataset.reader]


def _in_registry(name: str) -> Origin:
    entry = registry.entry(name)
    return Origin(entry.title, entry.licence, entry.citation.rstrip(), entry.homepage, entry)
