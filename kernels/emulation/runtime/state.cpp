#include "kernels/emulation/runtime/state.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <utility>

namespace tokenmill::emulation {
namespace {

thread_local int thread_device = 0;
thread_local cudaError_t thread_last_error = cudaSuccess;
thread_local bool in_host_function = false;
thread_local cudaStreamCaptureMode thread_capture_mode = cudaStreamCaptureModeGlobal;

/// The variable as a number, or fallback when it is not set. A value that is no number ends the program: it would run
/// on another machine than the one asked for.
uint64_t number_from_environment(const char* name, uint64_t fallback) {
  const char* text = std::getenv(name);
  if (text == nullptr) return fallback;
  char* end = nullptr;
  const uint64_t value = std::strtoull(text, &end, 0);
  if (end == text || *end != '\0') {
    std::fprintf(stderr, "%s is \"%s\"; it must be a whole number\n", name, text);
    std::abort();
  }
  return value;
}

Settings settings_from_environment() {
  Settings settings;
  if (const char* mode = std::getenv("TOKENMILL_EMULATION_MODE")) {
    if (std::strcmp(mode, "eager") != 0 && std::strcmp(mode, "lazy") != 0) {
      std::fprintf(stderr, "TOKENMILL_EMULATION_MODE is \"%s\"; it must be lazy or eager\n", mode);
      std::abort();
    }
    settings.mode = std::strcmp(mode, "eager") == 0 ? Mode::kEager : Mode::kLazy;
  }
  settings.seed = number_from_environment("TOKENMILL_EMULATION_SEED", settings.seed);
  settings.num_devices =
      static_cast<int>(number_from_environment("TOKENMILL_EMULATION_DEVICES", uint64_t(settings.num_devices)));
  settings.memory_bytes = number_from_environment("TOKENMILL_EMULATION_MEMORY", settings.memory_bytes);
  settings.context_bytes = number_from_environment("TOKENMILL_EMULATION_CONTEXT", settings.context_bytes);
  settings.graph_node_bytes = number_from_environment("TOKENMILL_EMULATION_GRAPH_NODE", settings.graph_node_bytes);
  settings.compute_capability = static_cast<int>(
      number_from_environment("TOKENMILL_EMULATION_CAPABILITY", uint64_t(settings.compute_capability)));
  settings.num_multiprocessors = static_cast<int>(
      number_from_environment("TOKENMILL_EMULATION_MULTIPROCESSORS", uint64_t(settings.num_multiprocessors)));
  settings.guard_memory = number_from_environment("TOKENMILL_EMULATION_GUARD", 1) != 0;
  return settings;
}

void add_legacy_streams(State& state) {
  for (int device = 0; device < state.settings.num_devices; ++device) {
    auto& stream = state.streams[static_cast<uint64_t>(device)];
    if (stream) continue;
    stream = std::make_unique<Stream>();
    stream->id = static_cast<uint64_t>(device);
    stream->device = device;
    stream->legacy = true;
  }
}

}  // namespace

/// Ids of created streams start above those of the legacy streams.
constexpr uint64_t kFirstStreamId = 1024;

State::State() : settings(settings_from_environment()), random(settings.seed), num_streams(kFirstStreamId) {
  add_legacy_streams(*this);
}

// Never destroyed: streams and buffers of static duration may outlive it.
State& state() {
  static State* const instance = new State;
  return *instance;
}

DeviceAccess::DeviceAccess() {
  if (state().num_device_users++ > 0) return;
  for (const auto& [device, arena] : state().arenas) arena->open();
}

void close_device_memory() {
  if (state().num_device_users > 0 || !state().settings.guard_memory) return;
  for (const auto& [device, arena] : state().arenas) arena->close();
}

int current_device() { return thread_device; }
void set_current_device(int device) { thread_device = device; }
cudaError_t take_last_error() { return std::exchange(thread_last_error, cudaSuccess); }
cudaError_t peek_last_error() { return thread_last_error; }
cudaStreamCaptureMode exchange_thread_capture_mode(cudaStreamCaptureMode mode) {
  return std::exchange(thread_capture_mode, mode);
}

HostFunctionScope::HostFunctionScope() { in_host_function = true; }
HostFunctionScope::~HostFunctionScope() { in_host_function = false; }

std::vector<Capture*> forbidding_captures() {
  std::vector<Capture*> forbidding;
  if (thread_capture_mode == cudaStreamCaptureModeRelaxed) return forbidding;
  for (const auto& capture : state().captures) {
    const bool own = capture->thread == std::this_thread::get_id();
    const bool global =
        capture->mode == cudaStreamCaptureModeGlobal && thread_capture_mode == cudaStreamCaptureModeGlobal;
    if (global || (own && capture->mode != cudaStreamCaptureModeRelaxed)) forbidding.push_back(capture.get());
  }
  return forbidding;
}

std::optional<Found> find_allocation(const void* address) {
  const auto& allocations = state().allocations;
  const auto value = reinterpret_cast<uintptr_t>(address);
  auto next = allocations.upper_bound(value);
  if (next == allocations.begin()) return std::nullopt;
  --next;
  if (value - next->first >= next->second.num_bytes) return std::nullopt;
  return Found{next->first, next->second};
}

cudaError_t Call::begin(InCapture rule) {
  if (in_host_function) return fail(cudaErrorNotPermitted, "called from a host function of a stream");
  if (state().sticky != cudaSuccess) return state().sticky;
  if (rule == InCapture::kUnsafe) {
    const auto captures = forbidding_captures();
    for (Capture* capture : captures) capture->invalid = true;
    if (!captures.empty()) return fail(cudaErrorStreamCaptureUnsupported, "not permitted while a stream captures");
  }
  return cudaSuccess;
}

/// Work that failed while the call waited decides its result.
cudaError_t Call::finish(cudaError_t code) { return state().sticky != cudaSuccess ? state().sticky : code; }

cudaError_t Call::fail_with(cudaError_t code, const std::string& text) {
  state().failure = fmt::format("{}: {}", name_, text);
  error_ = code;
  if (code != cudaErrorNotReady) thread_last_error = code;
  return code;
}

Stream* Call::stream(cudaStream_t handle) {
  if (handle == nullptr || handle == cudaStreamLegacy) return state().streams.at(uint64_t(current_device())).get();
  auto* stream = reinterpret_cast<Stream*>(handle);
  if (state().stream_handles.contains(stream)) return stream;
  fail(cudaErrorInvalidResourceHandle, "{} is not a stream", static_cast<const void*>(handle));
  return nullptr;
}

std::shared_ptr<Event> Call::event(cudaEvent_t handle) {
  const auto found = state().events.find(handle);
  if (found != state().events.end()) return found->second;
  fail(cudaErrorInvalidResourceHandle, "{} is not an event", static_cast<const void*>(handle));
  return nullptr;
}

Settings settings() {
  Lock lock(state().mutex);
  return state().settings;
}

void configure(const Settings& settings) {
  Lock lock(state().mutex);
  state().settings = settings;
  state().random.seed(settings.seed);
  add_legacy_streams(state());
}

Counters counters() {
  Lock lock(state().mutex);
  return state().counters;
}

void reset() {
  Lock lock(state().mutex);
  State& all = state();
  all.sticky = thread_last_error = cudaSuccess;
  all.failure.clear();
  all.counters = {};
  all.captures.clear();
  for (auto& [id, stream] : all.streams) {
    while (!stream->queue.empty() && !stream->busy) {
      if (stream->queue.front().finish) stream->queue.front().finish();
      stream->queue.pop_front();
    }
    stream->capture.reset();
    stream->tail.clear();
  }
  all.random.seed(all.settings.seed);
}

std::string last_failure() {
  Lock lock(state().mutex);
  return state().failure;
}

namespace {

bool in_one_allocation(const void* pointer, size_t num_bytes, bool pinned_too) {
  if (num_bytes == 0) return true;
  Lock lock(state().mutex);
  const auto found = find_allocation(pointer);
  return found && (pinned_too || found->allocation.kind == MemoryKind::kDevice) &&
         reinterpret_cast<uintptr_t>(pointer) - found->start + num_bytes <= found->allocation.num_bytes;
}

}  // namespace

bool in_device_memory(const void* pointer, size_t num_bytes) { return in_one_allocation(pointer, num_bytes, false); }

bool reachable_by_kernels(const void* pointer, size_t num_bytes) { return in_one_allocation(pointer, num_bytes, true); }

}  // namespace tokenmill::emulation
