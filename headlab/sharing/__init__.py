"""Masks and scores given to others, and taken from them: a folder, or a repository of the hub."""

from headlab.sharing.places import place_of as place_of
from headlab.sharing.pull import Pulled as Pulled
from headlab.sharing.pull import pull as pull
from headlab.sharing.push import Pushed as Pushed
from headlab.sharing.push import push as push
