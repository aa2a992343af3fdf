"""`course site`: the lessons, the guides and the API as static pages, without solutions.

`notebooks` makes a lesson's page and its launchable copy from the release and the solution
notebook; `pages` lays everything out as in the repository, calls Sphinx with `site/conf.py` and
puts the result in place.
"""

from course_lib.site.pages import Site, build

__all__ = ["Site", "build"]
