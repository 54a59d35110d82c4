"""The places where the published code differs from the paper that can be switched: F1, F2, ...

docs/fidelity.md has what `paper` and `published` mean for each, and F9, a value of params.yaml. F8
chooses what tables show; the others change a method's loss.
"""

SWITCHES = {  # by the subject
    "F1": "sibling's batch normalisation",
    "F2": "stored masks at a task's end",
    "F3": "diversity vectors",
    "F4": "gate",
    "F5": "mask replay",
    "F6": "stream loss",
    "F7": "distance",
    "F8": "forgetting",
    "F10": "diversity over replay",
    "F11": "CO2L's schedules",
    "F12": "LwF's distillation targets",
    "F13": "iCaRL's exemplars in training",
    "F14": "weights in TwF",
    "F15": "oEWC's Fisher information",
    "F16": "iCaRL's class means",
    "F17": "images that iCaRL's exemplars are chosen from",
}
