"""Put the course's files into the wheel, for `course init` and `course bundle`."""

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

FILES = ("solutions", "notebooks", "nbgrader_config.py")
FILES += ("pyproject.toml", "constraints.txt", "environment.yml", "LICENSE")


class CourseFiles(BuildHookInterface):
    def initialize(self, version: str, build_data: dict) -> None:
        """Add the files to a wheel; an editable install finds them in the clone."""
        if self.target_name == "wheel" and version != "editable":
            build_data["force_include"] |= {
                name: f"course_lib/course_files/{name}" for name in FILES
            }
