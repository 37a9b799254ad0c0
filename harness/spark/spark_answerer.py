"""A Spark session behind a pipe that repeats a request if a Python worker did not connect in time.

Spark gives a Python worker of a stream ten seconds to connect; no setting changes that. On a busy machine that is
sometimes too short. A retry is safe, because nothing was done by then.
"""

from harness.answerer import Answerer, Failed, Json

TOO_SLOW = "Python worker failed to connect back"
TRIES = 3


class SparkAnswerer(Answerer):
    """See the module."""

    def ask(self, command: str, **question: object) -> Json:
        for _ in range(TRIES - 1):
            try:
                return super().ask(command, **question)
            except Failed as failed:
                if TOO_SLOW not in str(failed):
                    raise
        return super().ask(command, **question)
