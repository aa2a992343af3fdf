"""Answers to `diagnosed_boxes`, as different hands would write them."""

from course_lib.authoring.variants import right, wrong

KEY = {"curlew": "masking_equals_deleting", "fulmar": "items_apart", "ibis": "empty_rows_zero"}

most_telling = right(lambda: dict(KEY))
others_that_break_too = right(
    lambda: {"ibis": "empty_rows_zero", "fulmar": "rows_sum_to_one", "curlew": "empty_rows_zero"}
)
more_boxes_than_asked = right(lambda: KEY | {"avocet": "rows_sum_to_one", "egret": "no idea"})
rows_for_nan = wrong("some_entries_are_wrong")(lambda: KEY | {"ibis": "rows_sum_to_one"})
in_words = wrong("ibis_unknown_id")(lambda: KEY | {"ibis": "an empty item becomes nan"})
a_list = wrong("no_dict")(lambda: list(KEY.values()))
