"""A faster local file system for Spark's checkpoints, compiled once per user with the compiler that Spark ships.

Hadoop's own local file system starts a program to set the mode of each file it makes, and writes a checksum file
beside it. An empty micro-batch, which writes two small files, takes six times as long with it.
"""

from __future__ import annotations

import logging
import os
import subprocess
import tempfile
from hashlib import sha256
from pathlib import Path

from headwater.errors import RunError
from headwater.spark.java import Java, cache_folder

log = logging.getLogger(__name__)

CLASS = "headwater.NioLocalFileSystem"

_SCALA = """\
package headwater

import java.nio.file.Files
import java.nio.file.attribute.PosixFilePermissions
import org.apache.hadoop.fs.{LocalFileSystem, Path, RawLocalFileSystem}
import org.apache.hadoop.fs.permission.FsPermission

class NioRawLocalFileSystem extends RawLocalFileSystem {
  override def setPermission(path: Path, mode: FsPermission): Unit = {
    val letters = mode.getUserAction.SYMBOL + mode.getGroupAction.SYMBOL + mode.getOtherAction.SYMBOL
    Files.setPosixFilePermissions(pathToFile(path).toPath, PosixFilePermissions.fromString(letters))
  }
}

// Spark's state store insists on a LocalFileSystem
class NioLocalFileSystem extends LocalFileSystem(new NioRawLocalFileSystem) {
  setWriteChecksum(false)
  setVerifyChecksum(false)
}
"""


def jar(java: Java, spark_home: Path, spark_version: str) -> Path | None:
    """Return the compiled file system; None, with a warning, where it cannot be compiled."""
    name = sha256(f"{spark_version}\n{_SCALA}".encode()).hexdigest()[:12]
    path = cache_folder() / f"niofs-{name}.jar"
    if not path.exists():
        try:
            _compile(java, spark_home, path)
        except (OSError, subprocess.TimeoutExpired, RunError) as error:
            log.warning("Spark runs with its slower local file system: %s", error)
            return None
    return path


def _compile(java: Java, spark_home: Path, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        text, fresh = Path(folder) / "Nio.scala", Path(folder) / path.name
        text.write_text(_SCALA)
        jars = f"{spark_home / 'jars'}{os.sep}*"
        compiler = subprocess.run(
            [java.home / "bin" / "java", "-cp", jars, "scala.tools.nsc.Main", "-usejavacp", "-d", fresh, text],
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        if compiler.returncode or not fresh.exists():
            raise RunError(f"it could not be compiled: {(compiler.stderr or compiler.stdout).strip()[-300:]}")
        fresh.replace(path)
