"""What can go wrong. Every error carries the library's own sentence: what happened, and what to do."""


class JitneyError(Exception):
    """Anything that the library refused or failed at."""


class LibraryNotFound(JitneyError, OSError):
    """libjitney.so is nowhere to be found, or is of another version."""


class BadRequest(JitneyError, ValueError):
    """The request, an option or the model file is wrong."""


class ModelNotFound(JitneyError, LookupError):
    """There is no such model."""


class QueueFull(JitneyError):
    """Too many requests wait already: try again later."""


class OutOfMemory(JitneyError, MemoryError):
    """There is not enough memory."""


class SystemFailure(JitneyError, OSError):
    """The system failed while reading or writing."""


class Closed(JitneyError):
    """The model was closed, perhaps while this call waited."""


class RequestFailed(JitneyError):
    """A request that was accepted could not be served. `answer` holds what there was of it."""

    def __init__(self, sentence, answer=None):
        super().__init__(sentence)
        self.answer = answer
