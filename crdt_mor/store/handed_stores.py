"""A store of obstore that a user hands in, as a store of ours in the same bucket.

    Table.open("s3://lake/events", store=S3Store("lake", credential_provider=provider))

What it was made with is taken from it: bucket, prefix, options, credential provider. Its requests are not: a client
that repeats a put out of sight answers that there is an object already where its own first try had made it, so that the
clients of `store.clients` repeat none.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from crdt_mor.errors import InvalidInputError
from crdt_mor.ground.clock import Environment
from crdt_mor.store.addresses import Place, Provider, place_of
from crdt_mor.store.options import CREDENTIAL_PROVIDER
from crdt_mor.store.protocol import Store

if TYPE_CHECKING:
    from obstore.store import AzureStore, GCSStore, S3Store

    Handed: TypeAlias = S3Store | AzureStore | GCSStore

_PROVIDERS: Final[Mapping[str, tuple[Provider, str, str]]] = {
    "S3Store": ("s3", "s3", "bucket"),
    "GCSStore": ("gs", "gs", "bucket"),
    "AzureStore": ("azure", "az", "container_name"),
}
"""The classes of obstore: the provider, its scheme, and the setting that says the bucket or the container."""

_METHODS: Final = tuple(name for name, member in vars(Store).items() if callable(member) and not name.startswith("_"))
"""What each store can do."""


def taken(store: Store | Handed, uri: str | os.PathLike[str], environment: Environment) -> Store:
    """A store of ours as it is; for one of obstore's the store that leads there, for the table at `uri`.

    uri: an address in its bucket, below its prefix if it has one; any other text is the table's name, and the table is
    at the prefix.
    """
    handed: Any = store
    if type(handed).__module__.partition(".")[0] != "obstore":
        _require_store(handed)
        return handed  # type: ignore[no-any-return]
    from crdt_mor.store.objects import open_at

    kind = type(handed).__name__
    if kind not in _PROVIDERS:
        raise InvalidInputError(
            "of the stores of obstore a table takes S3Store, AzureStore and GCSStore: for a disk give its path, for "
            f"memory crdt_mor.MemoryStore(). store={kind}"
        )
    provider, scheme, setting = _PROVIDERS[kind]
    options: dict[str, Any] = {**(handed.client_options or {}), **handed.config}
    bucket = options.pop(setting)
    if handed.credential_provider is not None:
        options[CREDENTIAL_PROVIDER] = handed.credential_provider
    prefix = str(handed.prefix or "").strip("/")
    place = place_of(os.fspath(uri))
    if place is None:
        place = place_of(f"{scheme}://{bucket}/{prefix}")
        assert place is not None
    _require_same(place, provider, bucket, prefix, uri)
    return open_at(place, options, environment)


def _require_store(handed: object) -> None:
    """Raise `InvalidInputError` for what lacks methods of a store, such as an address."""
    missing = [name for name in _METHODS if not callable(getattr(handed, name, None))]
    if isinstance(handed, type) or missing:
        raise InvalidInputError(
            "a store is an object with the methods of crdt_mor.Store, such as crdt_mor.MemoryStore(), or one of "
            "obstore's S3Store, AzureStore and GCSStore; an address of a table is its uri, and options for it are "
            f"storage_options. got={handed!r:.80} type={type(handed).__name__} missing={missing}"
        )


def _require_same(place: Place, provider: Provider, bucket: str, prefix: str, uri: object) -> None:
    inside = not prefix or place.root == prefix or place.root.startswith(f"{prefix}/")
    if (place.provider, place.bucket) != (provider, bucket) or not inside:
        raise InvalidInputError(
            "the address is not where the store leads: give an address in its bucket, below its prefix. "
            f"uri={uri} store={provider} bucket={bucket} prefix={prefix!r}"
        )
