"""Request handlers: one file per family of APIs, in folders by subject; `tables` constructs them.

Invariant: a handler translates requests into commands and replies into responses; it makes no decisions and holds no
state. No other folder of the server depends on this one.
"""
