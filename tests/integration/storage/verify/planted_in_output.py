"""What cannot be of a job's attempts, output and counts: invariant, subject, message, script."""

from typing import Final

from tests.integration.storage.verify.history import SECOND

PLANTED_IN_OUTPUT: Final = [
    (
        "I4",
        "one",
        "row 2 of its output begins at token ",
        "DELETE FROM chunk WHERE job = :one AND number = 1",
    ),
    (
        "I4",
        "one",
        "row 0 of its output begins at event 3, not 2",
        "UPDATE chunk SET first_event = 3, last_event = 4 WHERE job = :one AND number = 0",
    ),
    (
        "I4",
        "one",
        "row 2 of its output begins at event 5, not 4",
        "UPDATE chunk SET first_event = 5, last_event = 6 WHERE job = :one AND number = 2",
    ),
    (
        "I4",
        "one",
        "begins at token 3 of choice 0, not 2",
        "UPDATE chunk SET first_token = 3 WHERE job = :one AND number = 1",
    ),
    (
        "I4",
        "one",
        "is of attempt 1, behind one of 2",
        "UPDATE chunk SET attempt = 2 WHERE job = :one AND number = 0",
    ),
    (
        "I4",
        "two",
        "holds 2 tokens, not 3",
        "UPDATE chunk SET token_count = 3 WHERE job = :two",
    ),
    (
        "I4",
        "two",
        "holds 1 log-probabilities for 2 tokens",
        "UPDATE chunk SET logprobs = x'91ca00000000' WHERE job = :two",
    ),
    ("I4", "two", "cannot be read", "UPDATE chunk SET parts = x'c1' WHERE job = :two"),
    ("I4", "two", "shows 0 events, not 2", "UPDATE chunk SET parts = x'90' WHERE job = :two"),
    ("I4", "two", "has 9 events, but 4 happened", "UPDATE job SET events = 9 WHERE id = :two"),
    ("I4", "four", "has 2 events, but 3 happened", "UPDATE job SET events = 2 WHERE id = :four"),
    (
        "I4",
        "two",
        "has output, but never started",
        "UPDATE job SET started_at = NULL WHERE id = :two",
    ),
    (
        "I5",
        "one",
        "is at attempt 2, but has 1 of which the last is 2",
        "DELETE FROM attempt WHERE job = :one AND number = 1",
    ),
    (
        "I5",
        "two",
        "is at attempt 3, but has 2 of which the last is 2",
        "UPDATE job SET attempt = 3 WHERE id = :two",
    ),
    (
        "I5",
        "two",
        "is running at attempt 2, but its attempt 1 is open",
        "UPDATE attempt SET outcome = NULL WHERE job = :two AND number = 1",
    ),
    (
        "I5",
        "three",
        "is retryable at attempt 1, but its attempt 1 is open",
        "UPDATE attempt SET outcome = NULL WHERE job = :three",
    ),
    (
        "I5",
        "two",
        "is running, but no attempt is open",
        "UPDATE attempt SET outcome = 'lost' WHERE job = :two",
    ),
    (
        "I5",
        "two",
        f"has its attempt 2 open on {SECOND}, which is lost",
        "UPDATE generation SET state = 'lost' WHERE id = :second",
    ),
    (
        "I5",
        "two",
        "had its attempt 2 on nobody, which never was",
        "UPDATE attempt SET generation = 'nobody' WHERE job = :two AND number = 2",
    ),
    (
        "I5",
        "two",
        "has started, but no attempt was accepted",
        "UPDATE attempt SET accepted_at = NULL WHERE job = :two",
    ),
    (
        "I5",
        "two",
        "has an accepted attempt, but has not started",
        "UPDATE job SET started_at = NULL WHERE id = :two",
    ),
    (
        "I5",
        "two",
        "has output of attempt 7, which never was",
        "UPDATE chunk SET attempt = 7 WHERE job = :two",
    ),
    (
        "I6",
        "four",
        "attempt 1 delivered 5 tokens, but its choices 4",
        "UPDATE attempt SET delivered_tokens = 5 WHERE job = :four",
    ),
    (
        "I6",
        "two",
        "attempt 1 of choice 0 has 3 tokens in the journal that it does not count",
        "UPDATE chunk SET token_count = 3 WHERE job = :two",
    ),
    (
        "I6",
        "two",
        "attempt 1 of choice 0 counts 2 tokens that are not in the journal",
        "DELETE FROM chunk WHERE job = :two",
    ),
    (
        "I6",
        "one",
        "counts 8 prompt tokens, 2 cached; its first accepted attempt 7, 2",
        "UPDATE job SET prompt_tokens = 8 WHERE id = :one",
    ),
    (
        "I6",
        "eight",
        "counts 1 prompt tokens, but no attempt was accepted",
        "UPDATE job SET prompt_tokens = 1 WHERE id = :eight",
    ),
    (
        "I6",
        "one",
        "counts 7 completion tokens, 0 of reasoning; its attempts delivered 6, 0",
        "UPDATE job SET completion_tokens = 7 WHERE id = :one",
    ),
    (
        "I6",
        "one",
        "counts 6 completion tokens, 1 of reasoning",
        "UPDATE job SET reasoning_tokens = 1 WHERE id = :one",
    ),
    (
        "I6",
        "second",
        "has 2 jobs, 21 tokens in all, but its attempts 2, 22",
        "UPDATE generation SET cached_tokens = 3 WHERE id = :second",
    ),
    (
        "I6",
        "second",
        "has 1 jobs",
        "UPDATE generation SET jobs = 1 WHERE id = :second",
    ),
    (
        "I6",
        "second",
        "has 2 jobs, 19 tokens in all, but its attempts 1, 11",
        "UPDATE generation SET completion_tokens = 1 WHERE id = :second;"
        "DELETE FROM attempt WHERE job = :one",
    ),
]
