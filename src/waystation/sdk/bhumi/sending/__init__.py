"""The parts of a Bhumi sender: a request's way from its permission over a relay to its outcome.

``exchange`` takes a permission (``outgoing``) and hands the request to ``delivery``, which tries the relays in turn by
the rules of ``retry``, each try over a connection of its own (``channels``, ``channel``). ``reading`` opens answers.
``recovery`` asks on for what has no outcome and for spare permissions; ``owner`` says which program works on what.
"""
