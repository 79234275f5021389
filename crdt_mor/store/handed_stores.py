"""Accept a store of obstore from a user, and make a store of ours for the same bucket.

    Table("s3://lake/events", opening=Opening(store=S3Store("lake", credential_provider=provider)))

Its bucket, prefix, options and credential provider are used, but not its client, which may retry puts.
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

_METHODS: Final = tuple(name for name, member in vars(Store).items() if callable(member) and not name.startswith("_"))


def own_store(store: Store | Handed, uri: str | os.PathLike[str], environment: Environment) -> Store:
    """Return a store of ours unchanged, or our store for the bucket of an obstore store.

    uri: an address in its bucket, below its prefix. Any other text only names the table, which is then at the prefix.
    """
    handed: Any = store
    if type(handed).__module__.partition(".")[0] != "obstore":
        _require_store(handed)
        return handed  # type: ignore[no-any-return]
    from crdt_mor.store.objects import open_at

    kind = type(handed).__name__
    if kind not in _PROVIDERS:
        raise InvalidInputError(
            "pass S3Store, AzureStore or GCSStore of obstore. For a disk pass its path, for memory "
            f"crdt_mor.store.MemoryStore(). store={kind}"
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
    missing = [name for name in _METHODS if not callable(getattr(handed, name, None))]
    if isinstance(handed, type) or missing:
        raise InvalidInputError(
            "pass as store an object with the methods of crdt_mor.store.Store, or obstore's S3Store, AzureStore or "
            "GCSStore. Pass an address as uri, and its options as "
            f"storage_options. got={handed!r:.80} type={type(handed).__name__} missing={missing}"
        )


def _require_same(place: Place, provider: Provider, bucket: str, prefix: str, uri: object) -> None:
    inside = not prefix or place.root == prefix or place.root.startswith(f"{prefix}/")
    if (place.provider, place.bucket) != (provider, bucket) or not inside:
        raise InvalidInputError(
            "the address is outside the store: pass an address in its bucket, below its prefix. "
            f"uri={uri} store={provider} bucket={bucket} prefix={prefix!r}"
        )
