"""Which tests `make check` leaves to `make test`, by file, beside those whose fixtures or marks say so."""

from collections.abc import Collection
from pathlib import PurePosixPath

# They start ranks of their own.
RANK_FILES = frozenset(
    [
        "cli/test_verify.py",
        "doctor/test_ranks.py",
        "fitting/test_layouts.py",
        "keras_fit/test_layouts.py",
        "ranks/test_collective_timeout.py",
        "ranks/test_join.py",
        "ranks/test_launch.py",
        "ranks/test_pool.py",
        "run/test_killed_stage.py",
        "run/test_launched_ranks.py",
        "run/test_memory.py",
        "run/test_python_replicas.py",
        "run/test_rank_training.py",
        "run/test_replicas.py",
        "run/test_replicas_options.py",
    ]
)

# Most of their tests train, compile or start a process.
SLOW_FILES = frozenset(
    [
        "bench/test_infer.py",
        "cli/test_bench.py",
        "cli/test_crossval.py",
        "cli/test_doctor.py",
        "cli/test_export.py",
        "cli/test_train.py",
        "crossvalidation/test_fold_training.py",
        "crossvalidation/test_job.py",
        "crossvalidation/test_segmentation.py",
        "data/test_segmentation_splits.py",
        "devices/test_allocator.py",
        "devices/test_compilation.py",
        "devices/test_cpu_half.py",
        "devices/test_half_products.py",
        "fitting/test_compiled.py",
        "inference/evaluate/test_evaluate.py",
        "inference/evaluate/test_evaluation_overlays.py",
        "inference/evaluate/test_given_data.py",
        "inference/export/test_export.py",
        "inference/export/test_export_module.py",
        "inference/model/test_optimised.py",
        "inference/model/test_trained_forward.py",
        "inference/predict/test_predict.py",
        "layers/draws/test_dropout_memory.py",
        "passes/test_whole_model.py",
        "pipeline/test_pipeline_bound.py",
        "program/test_capture.py",
        "run/loop/test_validation_pace.py",
        "run/summary/test_mask_pictures.py",
        "run/summary/test_pictures.py",
        "run/test_best_by.py",
        "run/test_compiled_runs.py",
        "run/test_damaged_files.py",
        "run/test_nothing_kept.py",
        "run/test_own_images.py",
        "run/test_parametrised_modules.py",
        "run/test_pipelined_runs.py",
        "run/test_predict_after.py",
        "run/test_resume.py",
        "run/test_segmentation_loss.py",
        "run/test_segmentation_runs.py",
        "run/test_shown_commands.py",
        "run/test_sixteen_bits.py",
        "run/test_transfer_runs.py",
        "run/test_unsaved_buffers.py",
        "store/test_data_files.py",
        "store/test_listing.py",
        "store/test_lock.py",
        "test_api.py",
        "test_api_commands.py",
        "test_corpus.py",
    ]
)


def marks_of(file: str, *, fixtures: Collection[str]) -> list[str]:
    """What a test is marked with for its file, a path below `tests`, and for its fixtures."""
    holds = {
        "accelerator": PurePosixPath(file).stem.endswith("_on_accelerator"),
        "ranks": file in RANK_FILES or "rank_pool" in fixtures,
        "slow": file in SLOW_FILES,
    }
    return [mark for mark, is_held in holds.items() if is_held]
