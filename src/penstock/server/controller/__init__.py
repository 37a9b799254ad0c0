"""The controller on this node, and the channel to the active controller.

Invariants: a reply is sent once all changes it depends on are committed; on loss of leadership the controller returns
to the committed image.
"""
