"""Tokens that only the user they were issued to can use."""

from contextlib import suppress
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final

from agentjobs_async import InvalidInputError, JobRef
from agentjobs_async._extras import extra_named
from agentjobs_async._validation import checked_seconds

if TYPE_CHECKING:  # of the extra web: an application that signs no tokens needs only the package itself
    from itsdangerous import TimestampSigner

__all__ = ["SignedTokens"]

_LEAST_SECRET_BYTES: Final = 16  # a shorter one could be found by trying
_BETWEEN_IDS: Final = "~."
_BETWEEN_SIGNED_IDS: Final = "~~"  # so that `JobRef.from_token` refuses it: in a token two digits follow each other `~`
_SIGNATURE_BYTES: Final = 16  # of the HMAC-SHA256's 32: not to be forged, and short enough for a button


class SignedTokens:
    """Issues tokens of jobs, and reads them: each is bound to one user, and cannot be read, changed or made for others.

    A token is one path segment of visible ASCII. It is 30 bytes longer than `ref.to_token(url=True)`: at most 64 bytes,
    a Telegram button's limit, where project and job id together have at most 32 characters of `A-Z a-z 0-9 - . _`. Any
    other character counts 3 for each byte of its UTF-8. Where the ids are longer, store the job under a short key of
    your own.

    A token is signed, not encrypted: its holder can see the ids. `JobRef.from_token` refuses it.

    Args:
        secret: At least 16 bytes, the same in all processes, such as `secrets.token_urlsafe(32)`. Another one makes all
            tokens invalid.

    Raises:
        InvalidInputError: `secret` is no text or bytes, or too short; it is not quoted.
        ModuleNotFoundError: The extra `web` is not installed.
    """

    __slots__ = ("_secret",)

    def __init__(self, secret: str | bytes) -> None:
        if not isinstance(secret, str | bytes):
            raise InvalidInputError(f"secret must be a string or bytes, not {type(secret).__name__}")
        self._secret = secret.encode("utf-8", "surrogatepass") if isinstance(secret, str) else secret
        if len(self._secret) < _LEAST_SECRET_BYTES:
            raise InvalidInputError(f"secret must have at least {_LEAST_SECRET_BYTES} bytes")
        _truncated_algorithm()

    def issue(self, ref: JobRef, *, user: str | int) -> str:
        """Return a token of the job that `user`, and no other, can use.

        Args:
            ref: The job.
            user: The user's id, of your application or of the chat: text that is not empty, or a whole number, which is
                the same as its digits.

        Raises:
            InvalidInputError: An argument is invalid.
        """
        if not isinstance(ref, JobRef):
            raise InvalidInputError(f"ref must be a JobRef, such as job.ref, not {type(ref).__name__}")
        payload = ref.to_token(url=True).replace(_BETWEEN_IDS, _BETWEEN_SIGNED_IDS, 1)
        return self._signer(user).sign(payload).decode()

    def read(self, text: str, *, user: str | int, max_age: float | None = None) -> JobRef:
        """Return the job of a token that was issued to `user`.

        Args:
            text: The token.
            user: As in `issue`: the user who sends the token, as your application knows them.
            max_age: Seconds above 0 since the token was issued; `None` for any age.

        Raises:
            InvalidInputError: `text` is not a token, was issued to another user or with another secret, or is older
                than `max_age` seconds; which of these, is not said.
        """
        from itsdangerous import BadSignature  # noqa: PLC0415 - of the extra web

        signer = self._signer(user)
        limit = None if max_age is None else checked_seconds("max_age", max_age)
        payload = None
        if isinstance(text, str):
            with suppress(BadSignature, ValueError):  # ValueError: a lone surrogate
                payload = signer.unsign(text, max_age=limit).decode()  # type: ignore[arg-type]  # a float serves too
        if payload is None:
            raise InvalidInputError("not a valid token of this user, or too old")
        return JobRef.from_token(payload.replace(_BETWEEN_SIGNED_IDS, _BETWEEN_IDS, 1))

    def _signer(self, user: object) -> "TimestampSigner":
        from itsdangerous import TimestampSigner  # noqa: PLC0415 - of the extra web

        if isinstance(user, bool) or not isinstance(user, str | int) or user == "":
            raise InvalidInputError("user must be the user's id: text that is not empty, or a whole number")
        salt = f"agentjobs_async.web.SignedTokens:{user}".encode("utf-8", "surrogatepass")
        return TimestampSigner(self._secret, salt, key_derivation="hmac", algorithm=_truncated_algorithm())

    def __repr__(self) -> str:
        return "<SignedTokens>"


def _truncated_algorithm() -> Any:
    """Return HMAC-SHA256, cut to the bytes that a token has room for.

    Raises:
        ModuleNotFoundError: The extra `web` is not installed.
    """
    with extra_named("agentjobs_async.web.SignedTokens"):
        from itsdangerous.signer import HMACAlgorithm  # noqa: PLC0415 - of the extra web

    class Truncated(HMACAlgorithm):
        def get_signature(self, key: bytes, value: bytes) -> bytes:
            return super().get_signature(key, value)[:_SIGNATURE_BYTES]

    return Truncated(sha256)
