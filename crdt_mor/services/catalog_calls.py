"""Load catalogs of pyiceberg by name, and turn their errors into ours.

Each call to a catalog runs inside `answers`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from logging import NullHandler, getLogger
from typing import TYPE_CHECKING, Final

from crdt_mor.errors import (
    CrdtMorError,
    InvalidInputError,
    StorageRefusedError,
    StorageUnavailableError,
    UnsupportedFeatureError,
)

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog

GLUE: Final = "glue"
"""The name of AWS Glue, which needs no configuration of pyiceberg."""

_NO_ACCESS: Final = frozenset(
    {
        "UnauthorizedError", "ForbiddenError", "AuthorizationExpiredError", "OAuthError", "NoCredentialsError",
        "PartialCredentialsError", "AccessDeniedException", "UnrecognizedClientException", "ExpiredTokenException",
        "InvalidClientTokenId", "InvalidSignatureException",
    }
)  # fmt: skip
"""Errors, and codes of AWS."""

_CAUSE_MAX: Final = 300


def catalog_of(name: str, **options: str) -> Catalog:
    """Load a catalog of pyiceberg's configuration, or Glue. options: count more than the configuration."""
    try:
        from pyiceberg.catalog import load_catalog
    except ImportError as error:
        raise UnsupportedFeatureError(
            f"catalogs need pyiceberg: run pip install 'crdt-mor[iceberg]'. catalog={name}"
        ) from error
    with answers(name):
        getLogger("thrift").addHandler(NullHandler())  # else it prints errors that are raised as well
        try:
            return load_catalog(name, **({"type": GLUE} if name == GLUE else {}), **options)
        except ValueError as error:
            if type(error) is not ValueError:  # a server's reply is no JSON
                raise
            variable = f"PYICEBERG_CATALOG__{name.upper().replace('-', '_')}__URI"
            raise InvalidInputError(
                f"pyiceberg's configuration lacks the catalog, or an option: set {variable}, or write the catalog to "
                f"~/.pyiceberg.yaml. catalog={name} cause={_cause(error)}"
            ) from error


@contextmanager
def answers(catalog: str) -> Iterator[None]:
    """Turn errors of a catalog's client into ours."""
    try:
        yield
    except CrdtMorError:
        raise
    except Exception as error:  # each catalog's client raises other errors
        raise _told(error, catalog) from error


def _told(error: Exception, catalog: str) -> CrdtMorError:
    facts = f"catalog={catalog} cause={_cause(error)}"
    if isinstance(error, ImportError) or type(error).__name__ == "NotInstalledError":
        return UnsupportedFeatureError(f"a package of the catalog is missing: run the pip line of the cause. {facts}")
    if isinstance(error, NotImplementedError):
        return UnsupportedFeatureError(f"the catalog lacks an operation: register in another one. {facts}")
    if {type(error).__name__, _code(error)} & _NO_ACCESS:
        return StorageRefusedError(f"the catalog refused access: check its credentials and permissions. {facts}")
    return StorageUnavailableError(
        f"the catalog failed or did not answer: check its address and options, or try again. {facts}"
    )


def _code(error: Exception) -> str:
    answer = getattr(error, "response", None)
    return str(answer.get("Error", {}).get("Code", "")) if isinstance(answer, dict) else ""


def _cause(error: Exception) -> str:
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text[:_CAUSE_MAX]}"
