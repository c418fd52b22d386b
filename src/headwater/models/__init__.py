"""Trained models as plain data, where they are kept, how they are announced, and steps that swap them while running."""

from headwater.models.announce import announce, announcements
from headwater.models.folder import ModelFolder
from headwater.models.model import Fork, Leaf, LinearModel, Model, TreeModel, from_json, from_weka, load, save
from headwater.models.predict import MODELS, Classify, LoadModel, ModelStep, Regress
from headwater.models.store import ModelStore

__all__ = [
    "MODELS",
    "Classify",
    "Fork",
    "Leaf",
    "LinearModel",
    "LoadModel",
    "Model",
    "ModelFolder",
    "ModelStep",
    "ModelStore",
    "Regress",
    "TreeModel",
    "announce",
    "announcements",
    "from_json",
    "from_weka",
    "load",
    "save",
]
