import json

import pytest

from course_lib import cli, doctor


def test_a_pin_that_differs_is_named_with_the_command(tmp_path):
    (tmp_path / "constraints.txt").write_text("# pins\nnumpy==0.1\nnot-installed==1\n")
    finding = doctor.look_at_packages(tmp_path)
    assert not finding.ok
    assert "instead of 0.1" in finding.seen
    assert "not-installed" not in finding.seen
    assert "pip install -c" in finding.mend


def test_a_missing_package_is_named(tmp_path, monkeypatch):
    (tmp_path / "constraints.txt").write_text("numpy==0.1\n")
    monkeypatch.setattr(doctor, "missing_packages", lambda: ["rich"])
    assert doctor.look_at_packages(tmp_path).seen == "missing: rich"


def test_nothing_of_the_student_core_is_missing_here():
    assert doctor.missing_packages() == []


def test_a_look_that_fails_is_a_finding():
    def look_at_fire():
        raise RuntimeError("smoke")

    finding = doctor._safely(look_at_fire)
    assert not finding.ok
    assert finding.seen == "RuntimeError: smoke"


def test_a_folder_that_cannot_be_written_is_found(tmp_path):
    assert doctor.look_at_folder(tmp_path).ok
    assert not doctor.look_at_folder(tmp_path / "missing").ok
    assert doctor.look_at_folder(None).mend.startswith("cd ")


def test_a_full_disk_is_found(tmp_path, monkeypatch):
    monkeypatch.setattr(doctor, "FREE_GB_WANTED", 1e9)
    assert not doctor.look_at_disk(tmp_path).ok


def test_the_text_gives_each_bad_line_its_cure():
    findings = [
        doctor.Finding("a", True, "fine", "unused"),
        doctor.Finding("b", False, "x", "do y"),
    ]
    assert doctor.to_text(findings) == (
        "ok   a         fine\nBAD  b         x\n     mend with: do y"
    )
    assert json.loads(doctor.to_json(findings))[1]["mend"] == "do y"


@pytest.mark.parametrize("ok", [True, False])
def test_doctor_exits_with_what_it_found(monkeypatch, capsys, ok):
    monkeypatch.setattr(doctor, "examine", lambda root: [doctor.Finding("a", ok, "seen")])
    assert cli.main(["doctor", "--json"]) == (0 if ok else 1)
    assert json.loads(capsys.readouterr().out)[0]["ok"] is ok


def test_a_kernel_starts_here():
    assert doctor.look_at_kernel().ok
