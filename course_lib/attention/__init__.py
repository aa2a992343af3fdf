"""The course's solutions: one module a lesson, each read like the explanation of its lesson.

Every public function and class is an exercise; the build pastes its source into the lesson.
"""
