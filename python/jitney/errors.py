"""Exceptions. Each has the library's message: what happened, and what to do."""


class JitneyError(Exception):
    """Base class: the library refused a request or failed."""


class LibraryNotFound(JitneyError, OSError):
    """libjitney.so was not found, or has another version."""


class BadRequest(JitneyError, ValueError):
    """The request, an option or the model file is wrong."""


class ModelNotFound(JitneyError, LookupError):
    """There is no such model."""


class QueueFull(JitneyError):
    """Too many requests are waiting: try again later."""


class OutOfMemory(JitneyError, MemoryError):
    """There is not enough memory."""


class SystemFailure(JitneyError, OSError):
    """The system failed while reading or writing."""


class Closed(JitneyError):
    """The model was closed, perhaps during this call."""


class RequestFailed(JitneyError):
    """An accepted request could not be completed. `answer` has the part that was generated."""

    def __init__(self, sentence, answer=None):
        super().__init__(sentence)
        self.answer = answer
