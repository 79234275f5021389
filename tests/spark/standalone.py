"""A standalone cluster on loopback, for several applications at once: a master and two workers, each a process.

What an administrator gives to all applications is in its `spark-defaults.conf`: dynamic allocation, so that executors
come and go, adaptive plans, and speculation. What leads to a store is in the environment of its processes, as
docs/spark.md has it for keys.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from subprocess import Popen

from tests import waiting
from tests.servers import free_port
from tests.spark.counting import kill, started
from tests.spark.sessions import ROOT

SETTINGS = {
    "spark.cores.max": 2,
    "spark.executor.cores": 1,
    "spark.executor.memory": "512m",
    "spark.driver.memory": "512m",
    "spark.dynamicAllocation.enabled": "true",
    "spark.dynamicAllocation.shuffleTracking.enabled": "true",
    "spark.dynamicAllocation.shuffleTracking.timeout": "15s",
    "spark.dynamicAllocation.minExecutors": 1,
    "spark.dynamicAllocation.maxExecutors": 2,
    "spark.dynamicAllocation.executorIdleTimeout": "15s",
    "spark.sql.adaptive.enabled": "true",
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.multiplier": "1.5",
    "spark.speculation.quantile": "0.5",
    "spark.task.maxFailures": 100,
    "spark.stage.maxConsecutiveAttempts": 100,
}
"""Two applications share four cores, and executors are killed all the time: no number of losses may end a job."""


class Cluster:
    """A running cluster. home: holds its settings and logs. environment: of all its processes, beside that of here."""

    def __init__(self, home: Path, environment: Mapping[str, str]) -> None:
        import pyspark

        self._home = home
        self._program = Path(pyspark.__file__).parent / "bin" / "spark-class"
        self.environment = {
            "PYSPARK_PYTHON": sys.executable,
            "PYSPARK_DRIVER_PYTHON": sys.executable,
            "PYTHONPATH": str(ROOT),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_CONF_DIR": str(home / "conf"),
            "SPARK_MASTER_OPTS": "-Dspark.deploy.maxExecutorRetries=-1",
            **environment,
        }
        (home / "conf").mkdir(parents=True)
        lines = [f"{name} {value}\n" for name, value in SETTINGS.items()]
        (home / "conf" / "spark-defaults.conf").write_text("".join(lines))
        port = free_port()
        self.master = f"spark://127.0.0.1:{port}"
        self._processes: list[Popen[str]] = []
        try:
            self._start("master.Master", "--port", str(port))
            self._await("master.Master", "I have been elected leader")
            for number in range(2):
                folder = str(home / f"work-{number}")
                self._start("worker.Worker", "--cores", "2", "--memory", "2G", "--work-dir", folder, self.master)
            self._await("worker.Worker", "Successfully registered with master", times=2)
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """End the master and the workers, and with them every executor."""
        for process in self._processes:
            kill(process)

    @property
    def workers(self) -> list[int]:
        """The processes below which executors are."""
        return [process.pid for process in self._processes[1:]]

    def _start(self, part: str, *options: str) -> None:
        command = [str(self._program), f"org.apache.spark.deploy.{part}", "--host", "127.0.0.1", "--webui-port", "0"]
        self._processes.append(started([*command, *options], self._log(part), self.environment))

    def _await(self, part: str, text: str, times: int = 1) -> None:
        log = self._log(part)
        waiting.wait_for(part, lambda: log.read_text().count(text) >= times, where=log.read_text, every_s=0.05)

    def _log(self, part: str) -> Path:
        return self._home / f"{part}.log"
