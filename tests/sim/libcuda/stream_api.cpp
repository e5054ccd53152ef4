// SPDX-License-Identifier: MIT
// Streams, graphs that are captured on one, and events.
#include "tests/sim/libcuda/driver.hpp"

namespace p2pd::sim {

namespace {

template <class Call>
CUresult on_stream(CUstream handle, Call call) {
  return in_context([&](Driver& here, Context& context) {
    const auto stream = here.stream(context, handle);
    if (stream == nullptr) return kInvalidHandle;
    const CUresult error = stream->context().error;
    return error != CUDA_SUCCESS ? error : call(here, *stream);
  });
}

}  // namespace

CUresult cuStreamCreate(CUstream* stream, unsigned) {
  return in_context([&](Driver& here, Context& context) {
    *stream = here.streams.add(here.new_stream(context));
    return CUDA_SUCCESS;
  });
}

CUresult cuStreamDestroy(CUstream stream) {
  return with_driver(
      [&](Driver& here) { return here.streams.take(stream) == nullptr ? kInvalidHandle : CUDA_SUCCESS; });
}

CUresult cuStreamSynchronize(CUstream handle) {
  return on_stream(handle, [](const Driver&, Stream& stream) {
    if (stream.capturing != nullptr) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    stream.drain();
    return stream.context().error.load();
  });
}

CUresult cuStreamWaitEvent(CUstream handle, CUevent event, unsigned) {
  return on_stream(handle, [&](const Driver& here, Stream& stream) {
    const auto found = here.events.find(event);
    if (found == nullptr) return kInvalidHandle;
    if (auto mark = found->mark()) stream.wait_for(std::move(mark));
    return CUDA_SUCCESS;
  });
}

CUresult cuStreamBeginCapture(CUstream handle, CUstreamCaptureMode) {
  return on_stream(handle, [](const Driver&, Stream& stream) {
    if (stream.capturing != nullptr) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    stream.capturing = std::make_shared<Graph>();
    return CUDA_SUCCESS;
  });
}

CUresult cuStreamEndCapture(CUstream handle, CUgraph* graph) {
  return on_stream(handle, [&](Driver& here, Stream& stream) {
    if (stream.capturing == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *graph = here.graphs.add(std::exchange(stream.capturing, nullptr));
    return CUDA_SUCCESS;
  });
}

CUresult cuGraphInstantiateWithFlags(CUgraphExec* executable, CUgraph graph, unsigned long long) {
  return in_context([&](Driver& here, const Context&) {
    const auto found = here.graphs.find(graph);
    if (found == nullptr) return kInvalidHandle;
    *executable = here.executables.add(std::make_shared<Graph>(*found));
    return CUDA_SUCCESS;
  });
}

CUresult cuGraphDestroy(CUgraph graph) {
  return with_driver([&](Driver& here) { return here.graphs.take(graph) == nullptr ? kInvalidHandle : CUDA_SUCCESS; });
}

CUresult cuGraphLaunch(CUgraphExec executable, CUstream handle) {
  return on_stream(handle, [&](const Driver& here, Stream& stream) {
    const auto found = here.executables.find(executable);
    if (found == nullptr) return kInvalidHandle;
    for (const Graph::Node& node : found->nodes) {
      const auto replay = [work = node.work](Operation& gpu) {
        gpu.replayed = true;
        work(gpu);
      };
      stream.submit(node.cost, replay, node.grid);
    }
    return CUDA_SUCCESS;
  });
}

CUresult cuGraphExecDestroy(CUgraphExec executable) {
  return with_driver(
      [&](Driver& here) { return here.executables.take(executable) == nullptr ? kInvalidHandle : CUDA_SUCCESS; });
}

CUresult cuEventCreate(CUevent* event, unsigned flags) {
  return in_context([&](Driver& here, const Context&) {
    *event = here.events.add(std::make_shared<Event>((flags & CU_EVENT_DISABLE_TIMING) == 0));
    return CUDA_SUCCESS;
  });
}

CUresult cuEventDestroy(CUevent event) {
  return with_driver([&](Driver& here) { return here.events.take(event) == nullptr ? kInvalidHandle : CUDA_SUCCESS; });
}

CUresult cuEventRecord(CUevent event, CUstream handle) {
  return on_stream(handle, [&](const Driver& here, Stream& stream) {
    const auto found = here.events.find(event);
    if (found == nullptr) return kInvalidHandle;
    found->record(stream.mark());
    return CUDA_SUCCESS;
  });
}

CUresult cuEventSynchronize(CUevent event) {
  return with_driver([&](Driver& here) {
    const auto found = here.events.find(event);
    if (found == nullptr) return kInvalidHandle;
    const auto mark = found->mark();
    if (mark == nullptr) return CUDA_SUCCESS;
    mark->reached.wait(false);
    here.timeline.finish(mark->step);
    return mark->context->error.load();
  });
}

CUresult cuEventElapsedTime(float* milliseconds, CUevent from, CUevent to) {
  return with_driver([&](Driver& here) {
    const auto first = here.events.find(from);
    const auto last = here.events.find(to);
    if (first == nullptr || last == nullptr || !first->timing || !last->timing) return kInvalidHandle;
    const auto begin = first->mark();
    const auto end = last->mark();
    if (begin == nullptr || end == nullptr) return kInvalidHandle;
    if (!begin->reached || !end->reached) return CUDA_ERROR_NOT_READY;
    *milliseconds = static_cast<float>((here.timeline.finish(end->step) - here.timeline.finish(begin->step)) / 1e6);
    const CUresult error = begin->context->error;
    return error != CUDA_SUCCESS ? error : end->context->error.load();
  });
}

}  // namespace p2pd::sim
