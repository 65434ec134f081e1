"""What cannot be, as SQL that makes it so: invariant, subject, what is found, script."""

from typing import Final

from tests.integration.storage.making import job_id
from tests.integration.storage.verify.history import FIRST, SECOND
from tests.integration.storage.verify.planted_in_output import PLANTED_IN_OUTPUT
from tests.integration.storage.verify.planted_in_waiting import PLANTED_IN_WAITING

IDS: Final = {
    "one": job_id(1),
    "two": job_id(2),
    "three": job_id(3),
    "four": job_id(4),
    "five": job_id(5),
    "six": job_id(6),
    "seven": job_id(7),
    "eight": job_id(8),
    "first": FIRST,
    "second": SECOND,
    "drain": f"drain_{1:032x}",
    "running": f"drain_{2:032x}",
}
"""Names for the parameters of the scripts, and for subjects that are an id."""

CONSUMER = (
    "INSERT INTO consumer (name, acked, passed, created_at, seen_at, include_attached, kinds,"
    " classes, tags) VALUES ('c', {0}, {0}, 1, 1, 0, '[]', '[]', '{{}}')"
)

PLANTED: Final = [
    *PLANTED_IN_OUTPUT,
    *PLANTED_IN_WAITING,
    (
        "I1",
        "four",
        "is running, but its end",
        "UPDATE job SET state = 'running' WHERE id = :four",
    ),
    (
        "I1",
        "eight",
        "is completed, but its end has the time None",
        "UPDATE job SET state = 'completed' WHERE id = :eight",
    ),
    ("I1", "one", "but its failure is []", "UPDATE job SET failure = '[]' WHERE id = :one"),
    (
        "I1",
        "eight",
        "is available and has a finish reason",
        "UPDATE job SET finish_reason = 'stop' WHERE id = :eight",
    ),
    (
        "I1",
        "one",
        "has ended, but its attempt 2 is open",
        "UPDATE attempt SET outcome = NULL WHERE job = :one AND number = 2",
    ),
    (
        "I1",
        "one",
        "its last attempt did not finish",
        "UPDATE attempt SET outcome = 'lost' WHERE job = :one AND number = 2",
    ),
    ("I1", "seven", "is kept until", "UPDATE job SET keep_until = 5 WHERE id = :seven"),
    (
        "I1",
        "four",
        "disagrees about the usage",
        "UPDATE job SET completion_tokens = 3 WHERE id = :four",
    ),
    (
        "I1",
        "five",
        "disagrees about the time",
        "UPDATE job SET finalized_at = finalized_at + 1 WHERE id = :five",
    ),
    (
        "I1",
        "one",
        "disagrees about the reason",
        "UPDATE job SET finish_reason = 'length' WHERE id = :one",
    ),
    ("I1", "one", "disagrees about the attempts", "UPDATE job SET attempt = 3 WHERE id = :one"),
    (
        "I1",
        "one",
        "disagrees about the outcome",
        "UPDATE report SET outcome = 'cancelled' WHERE subject = :one",
    ),
    (
        "I1",
        "one",
        "disagrees about its completeness",
        "UPDATE report SET complete = 0 WHERE subject = :one",
    ),
    (
        "I1",
        "one",
        "disagrees about everything",
        "UPDATE report SET payload = x'00' WHERE subject = :one",
    ),
    ("I3", "one", "has ended, but has no report", "DELETE FROM report WHERE subject = :one"),
    ("I3", "drain", "has ended, but has no report", "DELETE FROM report WHERE kind = 'drain'"),
    (
        "I3",
        "eight",
        "has not ended, but has a report",
        "UPDATE report SET subject = :eight WHERE subject = :five",
    ),
    (
        "I3",
        "running",
        "has a report, but still runs",
        "UPDATE report SET subject = :running WHERE kind = 'drain'",
    ),
    ("I3", "drain", "has a report, but never was", "DELETE FROM drain WHERE id = :drain"),
    (
        "I3",
        "first",
        "has a receipt, but is ready",
        "UPDATE generation SET state = 'ready' WHERE id = :first",
    ),
    (
        "I3",
        "first",
        "is over, but has no receipt",
        "DELETE FROM receipt WHERE generation = :first",
    ),
    (
        "I3",
        "first",
        "has a receipt of revision 2 that the feed does not show",
        "DELETE FROM report WHERE kind = 'generation'",
    ),
    (
        "I3",
        "first",
        "has a receipt of revision 2 in the feed, but revision 1 stands",
        "UPDATE receipt SET revision = 1 WHERE generation = :first",
    ),
    (
        "I6",
        "first",
        "its receipt says other totals than it has",
        "UPDATE receipt SET jobs = jobs - 1 WHERE generation = :first",
    ),
    (
        "I6",
        "first",
        "its receipt says more than it has",
        "UPDATE receipt SET jobs = jobs + 1 WHERE generation = :first",
    ),
    (
        "I3",
        "first",
        "has 2 receipts that count",
        "UPDATE report SET tombstone = 0 WHERE kind = 'generation'",
    ),
    (
        "I3",
        "four",
        "is not derived from it",
        "UPDATE report SET id = 'made up' WHERE subject = :four",
    ),
    ("feed", "feed", "has no counter", "DELETE FROM feed"),
    ("feed", "one", "stands at place -1", "UPDATE report SET seq = -1 WHERE subject = :one"),
    (
        "feed",
        "one",
        "stands at place 4, and the one before it is at 2",
        "DELETE FROM report WHERE seq = 3",
    ),
    ("feed", "feed", "counts to 3, and the last report is at 7", "UPDATE feed SET last = 3"),
    ("feed", "feed", "counts 1 as deleted, and the first", "UPDATE feed SET pruned = 1"),
    ("feed", "feed", "counts 1 bytes, and the reports have", "UPDATE feed SET bytes = 1"),
    ("feed", "c", "has acknowledged up to 99, and the feed ends at 7", CONSUMER.format(99)),
    (
        "feed",
        "c",
        "is live, and what it has not read is deleted up to 1",
        CONSUMER.format(0) + "; UPDATE feed SET pruned = 1",
    ),
    ("feed", "feed", "counts to 8, and the last report is at 7", "UPDATE feed SET last = 8"),
    (
        "commands",
        "command 99",
        f"is for {SECOND}, which is gone",
        "UPDATE generation SET state = 'gone' WHERE id = :second",
    ),
    (
        "commands",
        "command 99",
        "is for nobody, which never was",
        "UPDATE command SET generation = 'nobody'",
    ),
    (
        "commands",
        "command 99",
        "is about attempt 1 o",
        "UPDATE command SET attempt = 1 WHERE id = 99",
    ),
    (
        "commands",
        "two",
        "has 2 times cancel for attempt 2",
        "INSERT INTO command SELECT 100, generation, job, attempt, kind, created_at, params"
        " FROM command",
    ),
    (
        "commands",
        "two",
        "waits in attempt 2 for a command that nobody can send",
        "UPDATE attempt SET command = NULL WHERE job = :two AND number = 2",
    ),
    (
        "commands",
        "command 99",
        "is also the one of attempt 2 of ",
        "UPDATE attempt SET command = 99 WHERE job = :two AND number = 2",
    ),
    (
        "durability",
        "four",
        "is attached, but its request is on disk",
        "UPDATE job SET request = x'00' WHERE id = :four",
    ),
    (
        "durability",
        "two",
        "is attached, but its output is on disk",
        "UPDATE job SET durability = 'attached' WHERE id = :two",
    ),
    (
        "durability",
        "eight",
        "is durable, but its request is not on disk",
        "UPDATE job SET request = NULL WHERE id = :eight",
    ),
    (
        "durability",
        "seven",
        "but its request has no pad",
        "UPDATE job SET pad = NULL WHERE id = :seven",
    ),
    (
        "durability",
        "seven",
        "but its output has no pad",
        "UPDATE chunk SET pad = NULL WHERE job = :seven",
    ),
    (
        "checksums",
        "eight",
        "its request is not what was submitted",
        "UPDATE job SET request = x'00' WHERE id = :eight",
    ),
    (
        "checksums",
        "one",
        "row 1 of its output is not what was written",
        "UPDATE chunk SET logprobs = x'' WHERE job = :one AND number = 1",
    ),
    (
        "checksums",
        "one",
        "its report is not what was written",
        "UPDATE report SET payload = x'7b7d' WHERE subject = :one",
    ),
    ("states", "eight", "no known state: lazy", "UPDATE job SET state = 'lazy' WHERE id = :eight"),
    (
        "states",
        "two",
        "is running, but its claim has the time None",
        "UPDATE job SET claimed_at = NULL WHERE id = :two",
    ),
    (
        "states",
        "eight",
        "is available, but its claim has the time 5",
        "UPDATE job SET claimed_at = 5 WHERE id = :eight",
    ),
    (
        "states",
        "six",
        "is scheduled, but was tried 1 times",
        "UPDATE job SET attempt = 1 WHERE id = :six",
    ),
    (
        "states",
        "three",
        "to be tried again, but never failed",
        "UPDATE job SET failures = 0 WHERE id = :three",
    ),
    (
        "states",
        "three",
        "has failed more often than its 3 attempts",
        "UPDATE job SET failures = 4 WHERE id = :three",
    ),
    (
        "states",
        "two",
        "was asked to stop for None at",
        "UPDATE job SET stop_reason = NULL WHERE id = :two",
    ),
    (
        "states",
        "second",
        "is in no known state: away",
        "UPDATE generation SET state = 'away' WHERE id = :second",
    ),
    (
        "states",
        "first",
        "is gone, but its end has the time None",
        "UPDATE generation SET ended_at = NULL WHERE id = :first",
    ),
    (
        "states",
        "running",
        "is cancelled, but its end has the time None",
        "UPDATE drain SET state = 'cancelled' WHERE id = :running",
    ),
    (
        "states",
        "drain",
        "is completed, but 1 of 2 are accounted for",
        "UPDATE drain SET finished = 1 WHERE id = :drain",
    ),
    ("file", "mlxq.db", "CHECK constraint", "UPDATE job SET priority = 99999 WHERE id = :eight"),
    ("file", "attempt", "names a row of job", "UPDATE job SET id = 'job_x' WHERE id = :one"),
]
