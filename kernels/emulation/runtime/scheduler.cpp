#include "kernels/emulation/runtime/scheduler.h"

#include <utility>

namespace tokenmill::emulation {
namespace {

/// Work on a legacy stream comes after all earlier work of the device's blocking streams, and before all later work.
bool legacy_order_allows(const Stream& stream, uint64_t sequence) {
  if (!stream.legacy && !stream.blocking) return true;
  for (const auto& [id, other] : state().streams) {
    const bool related = other->device == stream.device && (stream.legacy ? other->blocking : other->legacy);
    if (other.get() == &stream || !related || other->queue.empty()) continue;
    if (other->queue.front().sequence < sequence) return false;
  }
  return true;
}

bool runnable(const Stream& stream) {
  if (stream.busy || stream.queue.empty()) return false;
  const Item& item = stream.queue.front();
  return (!item.ready || item.ready()) && legacy_order_allows(stream, item.sequence);
}

/// One of the nodes whose dependencies are done, at random.
size_t choose_node(const GraphRun& run) {
  std::vector<size_t> candidates;
  for (size_t i = 0; i < run.done.size(); ++i) {
    bool ready = !run.done[i];
    for (const size_t dependency : run.graph->nodes[i].dependencies) ready = ready && run.done[dependency];
    if (ready) candidates.push_back(i);
  }
  return candidates[state().random() % candidates.size()];
}

/// Runs without the mutex. Work that follows a sticky error is skipped. Host functions see no device memory.
void run_operation(Lock& lock, NodeKind kind, const char* name, const Operation& operation) {
  if (state().sticky != cudaSuccess || !operation) return;
  std::optional<DeviceAccess> access;
  if (kind == NodeKind::kHost) {
    close_device_memory();
  } else {
    access.emplace();
  }
  lock.unlock();
  Status status = operation();
  lock.lock();
  if (status.code != cudaSuccess && state().sticky == cudaSuccess) {
    state().sticky = status.code;
    state().failure = fmt::format("{}: {}", name, status.text);
  }
}

void count(NodeKind kind) {
  if (kind == NodeKind::kKernel) ++state().counters.launches;
  if (kind == NodeKind::kCopy) ++state().counters.copies;
}

/// True when the graph's last node has run.
bool run_graph_node(Lock& lock, GraphRun& run) {
  if (run.num_done < run.done.size()) {
    const size_t index = choose_node(run);
    const Node& node = run.graph->nodes[index];
    count(node.kind);
    run_operation(lock, node.kind, node.name, node.operation);
    run.done[index] = true;
    ++run.num_done;
  }
  return run.num_done == run.done.size();
}

void run_front(Lock& lock, Stream& stream) {
  Item& item = stream.queue.front();  // stays valid: the queue only grows at its end meanwhile
  stream.busy = true;
  bool finished = true;
  if (item.graph) {
    finished = run_graph_node(lock, *item.graph);
  } else {
    run_operation(lock, item.kind, item.name, item.operation);
  }
  stream.busy = false;
  if (finished) {
    if (item.finish) item.finish();
    stream.queue.pop_front();
    if (stream.destroyed && stream.queue.empty()) state().streams.erase(stream.id);
  }
  state().changed.notify_all();
}

bool queued_up_to(const Stream& stream, uint64_t sequence) {
  return !stream.queue.empty() && stream.queue.front().sequence <= sequence;
}

}  // namespace

void push(Call& call, Stream& stream, Item item) {
  item.sequence = ++state().num_items;
  stream.queue.push_back(std::move(item));
  if (state().settings.mode == Mode::kEager) drain_stream(call.lock(), stream);
}

cudaError_t refuse_implicit_capture(Call& call, const Stream& stream) {
  if (!stream.legacy) return cudaSuccess;
  bool touched = false;
  for (const auto& [id, other] : state().streams) {
    if (!other->capture || !other->blocking || other->device != stream.device) continue;
    other->capture->invalid = touched = true;
  }
  if (!touched) return cudaSuccess;
  return call.fail(cudaErrorStreamCaptureImplicit,
                   "work on the default stream would order a capturing stream after it");
}

cudaError_t append(Call& call, Stream& stream, NodeKind kind, const char* name, Operation operation) {
  if (stream.capture) {
    if (stream.capture->invalid) {
      return call.fail(cudaErrorStreamCaptureInvalidated, "an earlier error ended the capture of this stream");
    }
    auto& nodes = stream.capture->graph.nodes;
    nodes.push_back({kind, name, std::move(operation), stream.tail});
    stream.tail = {nodes.size() - 1};
    return cudaSuccess;
  }
  if (const cudaError_t error = refuse_implicit_capture(call, stream)) return error;
  count(kind);
  Item item;
  item.kind = kind;
  item.name = name;
  item.operation = std::move(operation);
  push(call, stream, std::move(item));
  return cudaSuccess;
}

bool run_one(Lock& lock) {
  std::vector<Stream*> candidates;
  for (const auto& [id, stream] : state().streams) {
    if (runnable(*stream)) candidates.push_back(stream.get());
  }
  if (candidates.empty()) return false;
  run_front(lock, *candidates[state().random() % candidates.size()]);
  return true;
}

void run_until(Lock& lock, const std::function<bool()>& condition) {
  while (!condition()) {
    // What cannot go on waits for work that another thread is running: a wait for a record that was never queued does
    // not exist.
    if (!run_one(lock)) state().changed.wait(lock);
  }
}

void drain_stream(Lock& lock, Stream& stream) {
  const uint64_t last = state().num_items;
  run_until(lock, [&] { return !queued_up_to(stream, last); });
}

void drain_device(Lock& lock, int device) {
  const uint64_t last = state().num_items;
  run_until(lock, [&] {
    for (const auto& [id, stream] : state().streams) {
      if (stream->device == device && queued_up_to(*stream, last)) return false;
    }
    return true;
  });
}

}  // namespace tokenmill::emulation
