"""What a request is told when it is not answered."""

from demur.tabular import TableError

__all__ = ["RefusedError"]


class RefusedError(TableError):
    """A request that cannot be answered: one sentence for whoever sent it, and the HTTP status.

    Parameters
    ----------
    message : str
    status : int, default 422

    Examples
    --------
    >>> error = RefusedError("there are no rows: give at least one")
    >>> error.status, str(error)
    (422, 'there are no rows: give at least one')
    """

    def __init__(self, message: str, status: int = 422) -> None:
        super().__init__(message)
        self.status = status
