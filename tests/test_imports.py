import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest
from waiting import PATIENCE

import course_lib

REPOSITORY = Path(__file__).resolve().parent.parent
PACKAGE = REPOSITORY / "course_lib"
STDLIB = sys.stdlib_module_names


def imports_of(path):
    """Every module that a file imports anywhere, as a dotted name with its file's line."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                yield f"{node.module}.{alias.name}", node.lineno


def part_of(path):
    """The part of the course a file belongs to: attention, reference, checks, ..."""
    return path.relative_to(PACKAGE).with_suffix("").parts[0]


def files_of(*parts):
    found = [path for path in sorted(PACKAGE.rglob("*.py")) if part_of(path) in parts]
    return [path for path in found if "sample_class" not in path.parts]


def forbidden(path, allowed):
    """What a file imports beyond `allowed` (dotted prefixes), each with its place."""
    return [
        f"{path.relative_to(REPOSITORY)}:{line} imports {name}"
        for name, line in imports_of(path)
        if not any(name == prefix or name.startswith(prefix + ".") for prefix in allowed)
    ]


MAY_IMPORT = {
    "attention": {"torch", "numpy", "jaxtyping", "course_lib.attention", *STDLIB},
    "reference": {"numpy", "course_lib.reference", *STDLIB},
}


@pytest.mark.parametrize("part", sorted(MAY_IMPORT))
def test_library_and_oracle_import_only_what_they_may(part):
    files = files_of(part)
    assert files
    assert [line for path in files for line in forbidden(path, MAY_IMPORT[part])] == []


def test_what_a_students_kernel_sees_imports_nothing_that_it_does_not_see():
    """At the top of a module; what a function imports later may be left out on purpose."""
    from course_lib.grading.kernels.sandbox import VISIBLE

    places = [PACKAGE / name for name in VISIBLE]
    files = {f for p in places for f in (p.rglob("*.py") if p.is_dir() else [p])}
    assert all(path.is_file() for path in files)
    missing = []
    for path in sorted(files):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ImportFrom) and node.module.startswith("course_lib."):
                home = REPOSITORY / node.module.replace(".", "/")
                wanted = {home / f"{alias.name}.py" for alias in node.names} | {
                    home.with_suffix(".py"),
                    home / "__init__.py",
                }
                unseen = {f for f in wanted if f.is_file()} - files
                missing += [f"{path.name} imports {f.relative_to(PACKAGE)}" for f in unseen]
    assert missing == []


def test_checks_never_import_the_solutions():
    found = [
        f"{path.relative_to(REPOSITORY)}:{line}"
        for path in files_of("checks")
        for name, line in imports_of(path)
        if name.startswith("course_lib.attention") or name == "course_lib.attention"
    ]
    assert found == []


def test_only_commands_and_grading_itself_import_grading_or_authoring():
    outsiders = [path for path in PACKAGE.rglob("*.py") if part_of(path) not in USERS]
    found = [
        f"{path.relative_to(REPOSITORY)}:{line} imports {name}"
        for path in outsiders
        for name, line in imports_of(path)
        if name.startswith(("course_lib.grading", "course_lib.authoring"))
    ]
    assert found == []


USERS = {
    "cli_authoring",
    "cli_grading",
    "cli_release",
    "bundle",
    "doctor",
    "benchmarks",
    "grading",
    "authoring",
}


def test_authoring_does_not_import_grading():
    found = [n for path in files_of("authoring") for n, _ in imports_of(path)]
    assert not [name for name in found if name.startswith("course_lib.grading")]


def fresh(code, *, modules=()):
    """Run code in a new process and return which of `modules` it has imported."""
    names = ", ".join(repr(name) for name in modules)
    code += f"\nimport sys; print(sorted(m for m in ({names},) if m in sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=REPOSITORY, check=True
    )
    return ast.literal_eval(done.stdout)


def test_observe_brings_in_no_judge_oracle_or_catalogue():
    secret = [
        f"course_lib.{name}"
        for name in ("reference", "attention", "checks.judge", "checks.catalogue", "checks.replay")
    ]
    assert fresh("import course_lib.checks.observe", modules=secret) == []


def test_observe_and_what_it_uses_import_numpy_and_torch_only():
    loaded = subprocess.run(
        [
            sys.executable,
            "-c",
            "import sys, course_lib.checks.observe\n"
            "print('\\n'.join(m.__file__ for n, m in list(sys.modules.items())"
            " if n.startswith('course_lib') and getattr(m, '__file__', None)))",
        ],
        capture_output=True,
        text=True,
        cwd=REPOSITORY,
        check=True,
    ).stdout.split()
    allowed = {"numpy", "torch", "course_lib.checks", *STDLIB}
    assert any(path.endswith("observe.py") for path in loaded)
    assert [line for path in loaded for line in forbidden(Path(path), allowed)] == []


def test_import_course_lib_is_fast_and_brings_in_nothing_heavy():
    heavy = ["torch", "numpy", "matplotlib", "typer", "nbgrader", "course_lib.checks"]
    assert fresh("import course_lib; dir(course_lib)", modules=heavy) == []
    bare, seconds = (
        min(processor_time(code) for _ in range(3)) for code in ("", "import course_lib")
    )
    assert seconds - bare < 0.2


def processor_time(code):
    """Seconds that a fresh interpreter computes for the code, whatever runs beside it."""
    before = os.times()
    subprocess.run([sys.executable, "-c", code], cwd=REPOSITORY, check=True)
    after = os.times()
    return sum(after[2:4]) - sum(before[2:4])  # user and system, of children


def test_the_command_line_starts_without_anything_heavy():
    heavy = ["torch", "numpy", "nbgrader", "nbconvert", "jupyter_client", "course_lib.grading.run"]
    assert fresh("import course_lib.cli", modules=heavy) == []


def test_every_public_solution_can_be_imported_from_course_lib():
    found = {}
    for path in files_of("attention"):
        if path.stem.startswith("_"):
            continue
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.FunctionDef | ast.ClassDef) and not node.name.startswith("_"):
                assert node.name not in found, f"{node.name} is defined in two lessons"
                found[node.name] = path.stem
    assert "masked_softmax" in found
    for name, stem in found.items():
        assert name in dir(course_lib)
        assert getattr(course_lib, name).__module__ == f"course_lib.attention.{stem}"


def test_the_catalogue_and_the_library_hold_the_same_exercises():
    from course_lib.checks import exercises

    public = set(dir(course_lib)) - {
        "__version__",
        "attention",
        "carry_on",
        "check",
        "checks",
        "hint",
        "plotting",
        "progress",
    }
    assert public == set(exercises())


def test_an_unknown_name_suggests_the_nearest():
    with pytest.raises(AttributeError, match="'mask_softmax'; did you mean 'masked_softmax'"):
        _ = course_lib.mask_softmax


def test_submodules_are_attributes_at_once():
    assert fresh("import course_lib; course_lib.plotting", modules=["course_lib.plotting"])


def test_a_private_name_is_not_searched_for():
    with pytest.raises(AttributeError, match=r"no attribute '__wrapped__'$"):
        _ = course_lib.__wrapped__


def test_the_catalogue_adds_nothing_to_what_the_students_kernel_knows():
    """A scenario or builder that only the catalogue knows could not be found by that kernel."""
    code = (
        "from course_lib.checks import scenarios as s; before = len(s.SCENARIOS) + len(s.BUILDERS);"
        "from course_lib.checks import exercises; exercises();"
        "print(len(s.SCENARIOS) + len(s.BUILDERS) - before)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=PATIENCE
    )
    assert done.stdout.strip() == "0", done.stderr


def test_reading_a_notebook_parses_no_grammar():
    """It takes most of a second in every process: see jsonschema in pyproject.toml."""
    code = "import sys, nbformat, jupyter_events; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "jsonschema" in done.stdout.split() and "lark" not in done.stdout.split()
