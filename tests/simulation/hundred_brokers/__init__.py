"""A world of a hundred brokers: what events in a large cluster cost its controller, and how long they take.

Checked: all partitions are led and in sync again; a reader of the log gets the image of the controller.
"""
