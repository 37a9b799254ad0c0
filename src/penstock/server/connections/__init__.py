"""Connections of clients and nodes: request frames, ordered responses, bounded memory, refusal of unknown clients.

Invariants: no memory is allocated from a declared length alone; the requests of a connection are begun and answered in
order; of the server's other packages, this one imports only `loop`.
"""
