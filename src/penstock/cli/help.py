"""Examples at the end of help texts, one per line."""


def examples(*lines: str) -> str:
    """An epilog that keeps its line breaks."""
    return "\b\nExamples:\n" + "\n".join(f"  {line}" for line in lines)
