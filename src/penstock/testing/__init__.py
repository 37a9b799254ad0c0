"""A real node as a pytest fixture, for tests. Part of the wheel; `def test(kafka): …` is all it takes."""
