"""Results of services, of checks and of comparisons, and the values that report their progress."""

from crdt_mor.api.diff import Differences
from crdt_mor.api.doctor import Checkup
from crdt_mor.api.erasure import Erased
from crdt_mor.api.load import LoadProgress, OnProgress
from crdt_mor.api.maintenance_results import Archived, Compacted
from crdt_mor.api.migration import Migrated
from crdt_mor.api.migration_status import MigrationStatus
from crdt_mor.read.explain import Explanation, Files
from crdt_mor.services.catalogs import Registered
from crdt_mor.services.clean import Cleaned
from crdt_mor.services.copy import Copied, CopyProgress
from crdt_mor.services.drop import Dropped
from crdt_mor.services.listing import ListedTable, TableList
from crdt_mor.services.maintain_report import Maintained, Upkeep
from crdt_mor.services.metrics import Metrics
from crdt_mor.services.migration import MigrationProgress
from crdt_mor.services.mirror import Mirrored
from crdt_mor.services.repair import Repaired
from crdt_mor.services.restore import Restored, Savepoint
from crdt_mor.services.rollback import GivenUp
from crdt_mor.services.verify_findings import Finding, Verification, VerifyProgress
from crdt_mor.store.racing import StoreCheck

__all__ = [
    "Archived", "Checkup", "Cleaned", "Compacted", "Copied", "CopyProgress", "Differences", "Dropped", "Erased",
    "Explanation", "Files", "Finding", "GivenUp", "ListedTable", "LoadProgress", "Maintained", "Metrics", "Migrated",
    "MigrationProgress", "MigrationStatus", "Mirrored", "OnProgress", "Registered", "Repaired", "Restored",
    "Savepoint", "StoreCheck", "TableList", "Upkeep", "Verification", "VerifyProgress",
]  # fmt: skip
