"""For tests: a real node as a pytest fixture. Comes with the wheel; `def test(kafka): …` is all it takes."""
