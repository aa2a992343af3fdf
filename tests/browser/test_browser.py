"""Check that axe-core finds known problems, because the other tests here rely on it."""

GOOD = (
    '<html lang="en"><title>A</title><main><h1>Masks</h1><img alt="a" src="data:,"></main></html>'
)


def test_axe_finds_what_is_wrong_and_nothing_else(page, axe):
    page.set_content(GOOD)
    assert axe(page) == []
    page.set_content(GOOD.replace('alt="a" ', "").replace("<h1>", '<h1 style="color:#ddd">'))
    assert sorted(finding.partition(":")[0] for finding in axe(page)) == [
        "color-contrast",
        "image-alt",
    ]
    assert axe(page, "h1")[0].startswith("color-contrast")
