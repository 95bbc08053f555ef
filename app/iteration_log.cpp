#include "app/iteration_log.h"

#include <fmt/format.h>

#include <algorithm>

#include "app/report_files.h"
#include "kernels/core/clock.h"
#include "kernels/core/error.h"

namespace tokenmill::app {
namespace {

constexpr double kFlush_s = 2;  // so that a log can be watched

io::File create(const std::string& path, int replica, int num_replicas) {
  const std::string name = iteration_log_path(path, replica, num_replicas);
  try {
    return io::File::create_in_place(name);
  } catch (const Error& error) {
    throw unwritable("--iteration-log", name, error);
  }
}

}  // namespace

std::string iteration_log_path(const std::string& path, int replica, int num_replicas) {
  return num_replicas > 1 ? fmt::format("{}.{}", path, replica) : path;
}

std::string iteration_line(const StepRecord& s, double origin_s) {
  const OpTimes& times = s.op_times;
  const double other_s = std::max(0.0, s.device_s - times.gemm_s - times.attention_s - times.host_s);
  return fmt::format(
      "{{\"step\":{},\"time_s\":{:.6f},\"step_s\":{:.6f},\"tokens\":{},\"prompt_tokens\":{},\"sequences\":{},"
      "\"logits_rows\":{},\"running\":{},\"waiting\":{},\"kv_blocks\":{},\"host_wait_s\":{:.6f},\"gemm_s\":{:.6f},"
      "\"attention_s\":{:.6f},"
      "\"other_s\":{:.6f},\"communication_s\":{:.6f}}}",
      s.step_id, s.launched_s - origin_s, s.device_s, s.num_tokens, s.num_prompt_tokens, s.num_sequences,
      s.num_logits_rows, s.num_running, s.num_waiting, s.num_used_blocks, s.host_wait_s, times.gemm_s,
      times.attention_s, other_s, times.host_s);
}

IterationLog::IterationLog(const std::string& path, int replica, int num_replicas)
    : writer_(create(path, replica, num_replicas)), origin_s_(SteadyClock().now_s()) {}

void IterationLog::add(const StepRecord& step) {
  writer_.write(iteration_line(step, origin_s_) + "\n");
  const double now_s = step.launched_s + step.device_s;
  if (now_s - flushed_s_ < kFlush_s) return;
  flushed_s_ = now_s;
  writer_.flush();
}

std::function<void(const StepRecord&)> step_listener(std::optional<IterationLog>& log) {
  if (!log) return {};
  return [&log](const StepRecord& step) { log->add(step); };
}

}  // namespace tokenmill::app
