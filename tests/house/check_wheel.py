"""Look at a built wheel and at its installation: run by `.ci/run` inside a clean environment, standard library only.

python check_wheel.py dist/needle_router-….whl
"""

import subprocess
import sys
import zipfile

PACKAGES = {"needle_router", "needle_policies"}
NEEDED = {
    "needle_router/py.typed",
    "needle_policies/py.typed",
    "needle_router/models/tiny-needle.cact",
    "needle_router/__main__.py",
}
HEAVY = {"jax", "torch", "numpy", "tensorflow", "transformers"}
#: Prints what an import pulled in beside the standard library, one name a line.
FOREIGN = """
import sys
sys.path[:0] = {path}
before = set(sys.modules)
import {package}
names = {{name.partition(".")[0] for name in set(sys.modules) - before}}
print(*sorted(names - set(sys.stdlib_module_names) - {{"{package}".partition(".")[0]}}), sep="\\n")
"""


def content_problems(names):
    """What is wrong with the file names of a wheel, one sentence each."""
    tops = {name.split("/")[0] for name in names}
    strays = sorted(top for top in tops - PACKAGES if not top.endswith(".dist-info"))
    found = [f"a stray top-level entry: {top}" for top in strays]
    found += [f"missing: {name}" for name in sorted(NEEDED - set(names))]
    if not any(name.endswith(".dist-info/licenses/LICENSE") for name in names):
        found.append("missing: LICENSE")
    found += [f"a compiled or test file: {name}" for name in names if name.endswith(".pyc") or "/tests/" in name]
    return found


def foreign_modules(package, path=()):
    """Top-level modules outside the standard library that importing `package` loads, in a fresh interpreter."""
    command = [sys.executable, "-I", "-c", FOREIGN.format(package=package, path=list(path))]
    return set(subprocess.run(command, check=True, capture_output=True, text=True).stdout.split())


def installation_problems():
    """What is wrong with the packages installed beside this interpreter, one sentence each."""
    found = [f"needle_policies imports {name}" for name in sorted(foreign_modules("needle_policies"))]
    found += [f"needle_router imports {name}" for name in sorted(foreign_modules("needle_router.app") & HEAVY)]
    code = "import needle_router as n; [getattr(n, name) for name in n.__all__]; print(n.__file__)"
    where = subprocess.run([sys.executable, "-I", "-c", code], check=True, capture_output=True, text=True).stdout
    return found if "site-packages" in where else [*found, f"needle_router was imported from {where.strip()}"]


if __name__ == "__main__":
    with zipfile.ZipFile(sys.argv[1]) as wheel:
        problems = content_problems(wheel.namelist())
    problems += installation_problems()
    print(*problems or [f"{sys.argv[1].rpartition('/')[2]}: as it should be"], sep="\n")
    sys.exit(bool(problems))
