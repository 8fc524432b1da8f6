"""What an erasure would do, and what it cannot do. Only reads."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from tidegate.app import App
from tidegate.batch.pipeline_files import head_plan
from tidegate.batch.still_batch import require_no_plan
from tidegate.erasure.deletions import lost_emissions
from tidegate.erasure.files import Survey, kept_schema, survey
from tidegate.erasure.keys import ErasedKeys
from tidegate.errors import SettingsInvalid
from tidegate.generations.lifecycle import files_of, has_published, require_not_looked_up
from tidegate.kafka.records import Slice, read_slice
from tidegate.ledger import Charge, Erasure, Head, Stream
from tidegate.ledger.planned import planned_pipeline, planned_pipelines
from tidegate.model.pipeline import Pipeline
from tidegate.numerals import counted

_KINDS = {"state": "the state of", "outbox": "the emissions of", "quarantine": "quarantine"}


@dataclass(frozen=True)
class PlannedErasure:
    """The effects that an erasure would have on a stream.

    Args:
        stream: the stream.
        keys: the keys; those of `unfinished`, if there is one.
        survey: the rows of the keys.
        sinks: sink -> a sentence on what is done there.
        remarks: what may still have the keys afterwards.
        unfinished: the erasure that goes on; None: another one begins.
        certificate: the finished erasure of all of the keys; None: there is none.
    """

    stream: Stream
    keys: ErasedKeys
    survey: Survey
    sinks: dict[str, str]
    remarks: tuple[str, ...]
    unfinished: Erasure | None = None
    certificate: Erasure | None = None

    @property
    def is_done(self) -> bool:
        """Whether all of the keys are erased, and have no row since."""
        has_rows = any(self.survey.rows.values())
        return self.unfinished is None and self.certificate is not None and not has_rows


def requested_keys(app: App, pipeline: str, stage: str | None, texts: Iterable[str]) -> ErasedKeys:
    """Return the keys of a pipeline, by its newest plan. Raises SettingsInvalid, and as `newest_pipeline`."""
    return ErasedKeys.of_stage(newest_pipeline(app, streams_of(app, pipeline)[0]), stage, texts)


def newest_pipeline(app: App, stream: Stream) -> Pipeline:
    """Return the pipeline of the head of a stream that has batches. Raises as `head_plan`."""
    plan = head_plan(app, app.ledger.head(stream))
    assert plan is not None, "the stream has batches"
    return planned_pipeline(plan)


def unfinished_in(erasures: Iterable[Erasure], head: Head) -> Erasure | None:
    """Return that of a stream's erasures that is not finished; None if there is none. The head names it."""
    return next((erasure for erasure in erasures if erasure.number == head.erasure), None)


def streams_of(app: App, pipeline: str) -> list[Stream]:
    """Return the streams of a pipeline that have batches; those that publish come first.

    They look for emissions of the others, too, while these still have them. Raises SettingsInvalid without
    any.
    """
    charge = app.ledger.charge(pipeline)
    streams = [stream for stream in app.ledger.streams() if stream.pipeline == pipeline]
    streams = [stream for stream in streams if app.ledger.head(stream).seq]
    if not streams:
        raise SettingsInvalid(
            f"No batch of a pipeline {pipeline} is committed, so it has no key",
            "`tidegate status` lists the pipelines.",
        )
    return sorted(streams, key=lambda stream: (charge.withholds(stream.generation), -stream.generation))


def plan_erasure(app: App, pipeline: str, keys: ErasedKeys | None) -> list[PlannedErasure]:
    """Return what an erasure would do to each stream of a pipeline.

    Args:
        app: the app.
        pipeline: the pipeline.
        keys: the keys; None: those of erasures that are not finished, which go on.

    Raises Halted if a batch is planned and not decided, or another pipeline's planned batch looks the state
    up; LakeDamaged, LakeUnavailable.
    """
    charge, streams = app.ledger.charge(pipeline), streams_of(app, pipeline)
    keys = keys or _unfinished_keys(app, streams)
    if keys is not None:
        for other in app.ledger.streams():
            # One without a batch is not in `streams`, and its first batch may have read the keys.
            if other.pipeline == pipeline and other not in streams:
                require_no_plan(app.ledger, other)
    planned = (_planned(app, charge, stream, keys) for stream in streams)
    return [erasure for erasure in planned if erasure is not None]


def _unfinished_keys(app: App, streams: Iterable[Stream]) -> ErasedKeys | None:
    """Return the keys of the erasure that is not finished, which is of all streams; None if there is none."""
    erasures = (unfinished_in(app.ledger.erasures(stream), app.ledger.head(stream)) for stream in streams)
    requests = (erasure.request for erasure in erasures if erasure is not None)
    return next((ErasedKeys.of_request(request) for request in requests if request is not None), None)


def _planned(app: App, charge: Charge, stream: Stream, keys: ErasedKeys | None) -> PlannedErasure | None:
    erasures = app.ledger.erasures(stream)
    unfinished = unfinished_in(erasures, app.ledger.head(stream))
    if unfinished is not None:
        if unfinished.request is None:
            return PlannedErasure(stream, ErasedKeys((), ()), Survey(), {}, (), unfinished)
        keys = ErasedKeys.of_request(unfinished.request)
    if keys is None:
        return None
    require_no_plan(app.ledger, stream)
    require_not_looked_up(app, stream)
    pipeline, rows = newest_pipeline(app, stream), survey(app, stream, keys)
    sinks = dict(_sink_effects(app, charge, stream, pipeline, rows, unfinished))
    remarks = tuple(_remarks(app, charge, stream, pipeline, rows))
    done = (erasure for erasure in erasures if all(map(erasure.covers, keys.texts)))
    return PlannedErasure(stream, keys, rows, sinks, remarks, unfinished, next(done, None))


def _sink_effects(
    app: App,
    charge: Charge,
    stream: Stream,
    pipeline: Pipeline,
    survey: Survey,
    unfinished: Erasure | None,
) -> Iterator[tuple[str, str]]:
    """Yield each sink with a sentence on what is done there."""
    seq = unfinished.seq if unfinished is not None else None
    given_up = {row.sink for row in app.ledger.given_up(stream) if row.seq == seq}
    places = {sink.name: ("outbox", pipeline.stage_of(sink).name) for sink in pipeline.sinks}
    for sink in app.sinks(stream, pipeline):
        place = places.get(sink.name)  # None: quarantined records go there, not emissions
        if charge.withholds(stream.generation):
            yield sink.name, f"{sink.name}: nothing, since {stream} sends nothing now."
        elif sink.name in given_up:
            why = f"since batch {seq}, which deletes them, was given up"
            yield sink.name, f"{sink.name}: it keeps the keys, {why}. Delete them there yourself."
        elif place in survey.unmatched and not survey.rows[place]:
            yield sink.name, f"{sink.name}: nothing, since its rows are kept by other keys."
        else:
            yield sink.name, sink.erasure_effect()


def _remarks(app: App, charge: Charge, stream: Stream, pipeline: Pipeline, survey: Survey) -> Iterator[str]:
    """Yield a sentence for each place that may still have the keys, or what came of their records."""
    for (kind, stage), columns in sorted(survey.unmatched.items()):
        by = f"the columns {', '.join(columns)}" if columns else "other keys"
        yield (
            f"{_KINDS[kind]} {stage}: its rows are kept by {by}, and may be of many keys: nothing is erased "
            "there."
        )
    yield from _remarks_on_former_sinks(app, stream, pipeline)
    if survey.unknown:
        yield (
            f"quarantine: {counted(survey.unknown, 'record')} without a key, not decoded, may have the keys: "
            f"see tidegate quarantine list {stream.pipeline} --generation {stream.generation}."
        )
    if lost := [] if charge.withholds(stream.generation) else list(lost_emissions(app, stream)):
        yield (
            f"{', '.join(lost)}: a sink keeps the windows that only they had, and what has its key in a "
            "registry's format. Delete these there yourself."
        )
        for outlet in pipeline.stages:
            if pipeline.sinks_of(outlet) and kept_schema(app, stream, outlet.name) is None:
                names = ", ".join(sink.name for sink in pipeline.sinks_of(outlet))
                yield (
                    f"no emission of the stage {outlet.name} is kept, which would tell what they look like: "
                    f"{names} get no deletion. Delete the keys there yourself."
                )
    topics = ", ".join(sorted(app.ledger.head(stream).topic_ids))
    yield (
        f"the source topics ({topics}) keep the records: a new generation, a restatement or a backfill reads "
        "them again. Send a tombstone there yourself."
    )
    for reader in _readers(app, stream.pipeline):
        yield (
            f"the pipeline {reader} looks its state up, and has copies under keys of its own: erase those "
            f"with tidegate erase {reader}."
        )
    own = [sink.name for sink in pipeline.sinks if sink.is_per_generation]
    if own and charge.withholds(stream.generation):
        folder = app.lake(stream).table_sink(None)
        yield (
            f"{', '.join(own)} of {stream}: its rows stay, since {stream} sends nothing now. Delete "
            f"the folder {folder} yourself."
        )
    if not charge.withholds(stream.generation):
        yield from _remarks_on_dropped(app, stream.pipeline)
    for given_up in app.ledger.given_up(stream):
        yield f"the export of batch {given_up.seq} in {given_up.export} stays: remove it yourself."


def _remarks_on_former_sinks(app: App, stream: Stream, pipeline: Pipeline) -> Iterator[str]:
    """Yield a sentence for each sink that has emissions of the stream, and is in its file no longer."""
    present = {sink.name for sink in pipeline.sinks}
    planned = (sink.name for former in planned_pipelines(app.ledger, stream) for sink in former.sinks)
    for name in sorted({*planned} - present):
        if app.ledger.last_published(stream, name):
            yield (
                f"{name}: it is not a sink of {stream} any more, so it gets no deletion and keeps the keys. "
                "Delete them there yourself."
            )


def _remarks_on_dropped(app: App, pipeline: str) -> Iterator[str]:
    """Yield a sentence for each place in the lake that may have the keys of a generation that was dropped."""
    for dropped in app.ledger.dropped_streams(pipeline):
        folder = app.lake(dropped).table_sink(None)
        if has_published(app, dropped):
            yield f"{dropped} is dropped, and its table sink keeps its rows. Delete {folder} yourself."
        if files := files_of(app, dropped):
            yield (
                f"{dropped} is dropped, and the lake still has {counted(len(files), 'file')} of it. Finish "
                f"that: tidegate generation drop {pipeline} {dropped.generation}."
            )


def _readers(app: App, pipeline: str) -> list[str]:
    """Return the other pipelines whose newest batches have looked up a state of this one."""
    plans = (head_plan(app, app.ledger.head(stream)) for stream in app.ledger.streams())
    return sorted(
        {
            plan.stream.pipeline
            for plan in plans
            if plan is not None and any(pin.get("pipeline") == pipeline for pin in plan.lookups.values())
        }
    )


def keys_in_topic(app: App, pipeline: str, topic: str) -> list[str]:
    """Return the distinct keys of a topic's records, in the cluster of the pipeline's source.

    Raises SettingsInvalid if a key is not text; TopicMissing, BrokerUnavailable.
    """
    connection = newest_pipeline(app, streams_of(app, pipeline)[0]).sources.connection
    with app.log(connection) as log:
        view = log.view(topic)
    keys: dict[str, None] = {}
    for partition, end in view.stable_ends.items():
        for block in read_slice(
            app.settings.kafka(connection), Slice(topic, partition, view.starts[partition], end)
        ):
            for message in block:
                keys[_text(message.key(), topic, partition)] = None
    return list(keys)


def _text(key: bytes | None, topic: str, partition: int) -> str:
    try:
        if key is not None:
            return key.decode()
    except UnicodeDecodeError:
        pass
    raise SettingsInvalid(
        f"A record of {topic}[{partition}] has no key, or one that is not text",
        "Send a record with each key to erase, as `tidegate state` writes it.",
    )
