"""A broker's settings as its operator gives them: from files and the environment to the plan of a node.

Nothing here starts a node: `penstock server`, `penstock config check` and `penstock doctor` read settings alike.
"""
