#include <algorithm>
#include <array>

#include "kernels/emulation/runtime/state.h"

namespace tokenmill::emulation {
namespace {

struct ErrorText {
  cudaError_t code;
  const char *name, *text;
};

#define TM_ERROR(code, text) \
  { code, #code, text }
/// The codes that the emulator returns, and the ones that code compares with.
constexpr auto kErrors = std::to_array<ErrorText>({
    TM_ERROR(cudaSuccess, "no error"),
    TM_ERROR(cudaErrorInvalidValue, "invalid argument"),
    TM_ERROR(cudaErrorMemoryAllocation, "out of memory"),
    TM_ERROR(cudaErrorInitializationError, "initialization error"),
    TM_ERROR(cudaErrorInvalidConfiguration, "invalid configuration of a launch"),
    TM_ERROR(cudaErrorInvalidPitchValue, "invalid pitch"),
    TM_ERROR(cudaErrorInsufficientDriver, "the driver is older than the runtime"),
    TM_ERROR(cudaErrorInvalidDeviceFunction, "invalid device function"),
    TM_ERROR(cudaErrorNoDevice, "no CUDA device is there"),
    TM_ERROR(cudaErrorInvalidDevice, "invalid device number"),
    TM_ERROR(cudaErrorNoKernelImageForDevice, "no kernel image for this device"),
    TM_ERROR(cudaErrorInvalidResourceHandle, "invalid resource handle"),
    TM_ERROR(cudaErrorIllegalState, "the object is in a state that does not allow the call"),
    TM_ERROR(cudaErrorNotReady, "not ready yet"),
    TM_ERROR(cudaErrorIllegalAddress, "an illegal memory access"),
    TM_ERROR(cudaErrorAssert, "an assertion failed on the device"),
    TM_ERROR(cudaErrorHostMemoryAlreadyRegistered, "the host memory is registered already"),
    TM_ERROR(cudaErrorHostMemoryNotRegistered, "the host memory is not registered"),
    TM_ERROR(cudaErrorLaunchFailure, "a kernel failed"),
    TM_ERROR(cudaErrorNotPermitted, "the call is not permitted here"),
    TM_ERROR(cudaErrorNotSupported, "the call is not supported"),
    TM_ERROR(cudaErrorStreamCaptureUnsupported, "not permitted while a stream captures"),
    TM_ERROR(cudaErrorStreamCaptureInvalidated, "an earlier error ended the capture"),
    TM_ERROR(cudaErrorStreamCaptureMerge, "two captures would be merged"),
    TM_ERROR(cudaErrorStreamCaptureUnmatched, "the capture did not begin on this stream"),
    TM_ERROR(cudaErrorStreamCaptureUnjoined, "the capture has a fork that was not joined"),
    TM_ERROR(cudaErrorStreamCaptureIsolation, "a dependency would leave the capture"),
    TM_ERROR(cudaErrorStreamCaptureImplicit, "an implicit dependency on the default stream"),
    TM_ERROR(cudaErrorCapturedEvent, "the event was last recorded in a capture"),
    TM_ERROR(cudaErrorStreamCaptureWrongThread, "another thread began the capture"),
    TM_ERROR(cudaErrorGraphExecUpdateFailure, "the executable graph cannot be updated so"),
    TM_ERROR(cudaErrorUnknown, "unknown error"),
});
#undef TM_ERROR

const ErrorText* find_error(cudaError_t code) {
  const auto* found =
      std::find_if(kErrors.begin(), kErrors.end(), [&](const ErrorText& error) { return error.code == code; });
  return found == kErrors.end() ? nullptr : found;
}

}  // namespace
}  // namespace tokenmill::emulation

using namespace tokenmill::emulation;  // the definitions below are the C functions of cuda_runtime_api.h

const char* cudaGetErrorName(cudaError_t code) {
  const auto* error = find_error(code);
  return error == nullptr ? "unrecognized error code" : error->name;
}

const char* cudaGetErrorString(cudaError_t code) {
  const auto* error = find_error(code);
  return error == nullptr ? "unrecognized error code" : error->text;
}

cudaError_t cudaPeekAtLastError() {
  Lock lock(state().mutex);
  return state().sticky != cudaSuccess ? state().sticky : peek_last_error();
}

cudaError_t cudaGetLastError() {
  Lock lock(state().mutex);
  const cudaError_t last = take_last_error();
  return state().sticky != cudaSuccess ? state().sticky : last;
}
