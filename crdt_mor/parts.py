"""Handles for writes and compactions of many processes, and the values that pass between these. See docs/processes.md.

The values can be pickled.
"""

from crdt_mor.api.job import Jobs, WriteJob
from crdt_mor.api.maintenance_plans import Plans
from crdt_mor.api.maintenance_results import CompactionPlan
from crdt_mor.api.merge_into_parts import MergePart, MergeSpread
from crdt_mor.api.split import SplitScan
from crdt_mor.api.update_parts import PartDone, UpdatePart
from crdt_mor.model.timeline_parts import DataFile, FileGroup
from crdt_mor.write.job_values import Receipt

__all__ = [
    "CompactionPlan", "DataFile", "FileGroup", "Jobs", "MergePart", "MergeSpread", "PartDone", "Plans", "Receipt",
    "SplitScan", "UpdatePart", "WriteJob",
]  # fmt: skip
