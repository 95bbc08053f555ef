#include "engine/request.h"

namespace tokenmill {

const char* to_string(FinishReason reason) {
  switch (reason) {
    case FinishReason::kStop:
      return "stop";
    case FinishReason::kLength:
      return "length";
    case FinishReason::kRepetition:
      return "repetition";
  }
  return "unknown";
}

}  // namespace tokenmill
