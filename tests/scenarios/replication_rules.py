"""Rules of replication, each with the scenario that fails without it, and the broken invariant."""

from tests.simulation.kit.mutants import Plant
from tests.simulation.replication_core import mutants

WITHOUT: list[tuple[str, Plant, str]] = [
    ("r01", mutants.truncates_to_the_high_watermark, "LeaderCandidateCompleteness"),
    ("r01", mutants.r01_cuts_to_the_high_watermark_after_a_restart, "LeaderCandidateCompleteness"),
    ("r02", mutants.r02_tells_no_epoch_where_logs_part, "StrongIsr"),
    ("r02", mutants.kip_101_only, "StrongIsr"),
    ("r03", mutants.r03_does_not_note_its_epoch_when_elected, "LeaderCandidateCompleteness"),
    ("r04", mutants.r04_serves_followers_of_an_older_epoch, "StrongIsr"),
    ("r04", mutants.kip_279_only, "StrongIsr"),
    ("r04", mutants.kip_320_first_try, "StrongIsr"),
    ("r05", mutants.r05_takes_the_high_watermark_before_it_cuts, "LogMatching"),
    ("r06", mutants.r06_counts_a_diverging_fetch, "StrongIsr"),
    ("r07", mutants.r07_proposes_fenced_replicas, "EligibleProposal"),
    ("r08", mutants.r08_names_the_life_that_the_metadata_knows, "StrongIsr"),
    ("r09", mutants.r09_thinks_anew_when_there_is_no_answer, "ReplicationQuorumSuperset"),
    ("r09", mutants.counts_only_on_those_known_to_be_in_sync, "ReplicationQuorumSuperset"),
    ("r10", mutants.r10_commits_alone, "LeaderCandidateCompleteness"),
    ("r28", mutants.r28_keeps_the_leader_epoch_of_a_session, "Convergence"),
    ("r28", mutants.r28_goes_on_with_a_session_whose_answer_is_lost, "LogMatching"),
    ("r29", mutants.r29_tells_ends_before_its_epoch_is_committed, "OffsetsDoNotGoBack"),
    ("trimmed", mutants.believes_in_epochs_before_the_start_of_its_log, "StrongIsr"),
    ("delete_records.", mutants.acknowledges_deletions_alone, "LowWatermark"),
    ("delete_records_eligible", mutants.acknowledges_deletions_without_eligible_leaders, "DeletedStaysDeleted"),
    ("delete_records_joining", mutants.forgets_deletions_of_earlier_leaders, "DeletedStaysDeleted"),
    ("delete_records_joining", mutants.lets_replicas_join_with_deleted_records, "DeletedStaysDeleted"),
]
