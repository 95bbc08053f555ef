#pragma once
#include "kernels/emulation/runtime/state.h"

/// Puts work into streams and runs it.
namespace tokenmill::emulation {

/// Appends work to the stream, or to the graph it captures; in eager mode runs it. Fails where captures forbid it.
cudaError_t append(Call& call, Stream& stream, NodeKind kind, const char* name, Operation operation);

/// Appends an item of any kind to a stream that does not capture; in eager mode runs it.
void push(Call& call, Stream& stream, Item item);

/// Runs one step of a stream chosen at random among those that can go on; false if none can.
bool run_one(Lock& lock);

/// Runs steps until condition holds; waits for other threads' work where nothing else is left to do.
void run_until(Lock& lock, const std::function<bool()>& condition);

/// Until all work of the device that is queued now, or the stream's, has run.
void drain_device(Lock& lock, int device);
void drain_stream(Lock& lock, Stream& stream);

/// Refuses work whose implicit order after the legacy stream would touch a capture; the captures are lost.
cudaError_t refuse_implicit_capture(Call& call, const Stream& stream);

}  // namespace tokenmill::emulation
