#pragma once
#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include "engine/hidden_states.h"
#include "engine/kv_cache.h"
#include "engine/models/decoder.h"
#include "engine/runner.h"
#include "engine/slot_tables.h"
#include "engine/step_graphs.h"
#include "engine/step_input.h"
#include "engine/step_output.h"
#include "kernels/ops.h"
#include "parallel/communicator.h"

namespace tokenmill {

/// How a rank moves tensors to and from the others of its replica. A group of one rank may be null.
struct ReplicaGroups {
  parallel::Communicator* tp = nullptr;  ///< the ranks of its pipeline stage
  parallel::Communicator* pp = nullptr;  ///< the ranks with its tp_rank; rank = stage
};

/// How steps reached the device, and what recording them took.
struct StepGraphFigures {
  struct Size {
    int64_t size;       ///< tokens of the layers, rows of the head
    int64_t num_steps;  ///< that were padded to it and replayed
  };
  std::vector<Size> layers, heads;
  int64_t num_eager_layers = 0, num_eager_heads = 0;  ///< steps that enqueued these operation by operation
  double record_s = 0;
  int64_t memory_bytes = 0;  ///< of the device
};

/// Runs one rank's share of a replica's steps on its device: applies the plan's deltas to its slots, stages the input,
/// runs the model and the sampler, stages the output. Leader and followers have one each. One thread calls it.
///
/// Up to limits().max_steps_in_flight steps may be launched before the oldest is collected. On the device they follow one
/// another on one stream and share all memory; host memory that a step's copies read or write is its own until it has
/// been collected.
class ModelRunner : public Runner {
 public:
  /// model is loaded and unbound; limits.kv_groups must be model.kv_specs(). Takes KV and activation memory from
  /// ops.memory(); everything outlives the runner. The stream of the groups is that of ops.
  ModelRunner(Ops& ops, Decoder& model, DType dtype, const RunnerLimits& limits, const ReplicaGroups& groups = {});

  /// Records the layers of steps of up to most tokens, transfers within the stage included, and on a stage of one rank
  /// the head of steps of up to most rows that report no logprobs: several ranks choose from short lists, whose lengths
  /// the host looks at. Before the first step; collective over the stage. Later steps are padded to the least recorded
  /// size and replayed; results do not change.
  void record_steps(int64_t most);
  StepGraphFigures graph_figures() const;

  /// Memory on the device for what steps bring in and out, from stage to stage too, and for the tables of slots;
  /// num_blocks is not looked at. On a CPU the host sides of it, too.
  static int64_t staging_bytes(const RunnerLimits& limits, const Decoder& model, DType dtype, DeviceKind device);

  const RunnerLimits& limits() const override { return limits_; }
  Ticket launch(const StepPlan& plan) override;
  StepResult collect(Ticket ticket) override;

 private:
  /// A slot whose samples and scores a step will bring.
  struct Wanted {
    int32_t slot;
    uint64_t occupant;                ///< the sequence that was in it at launch
    std::vector<int64_t> positions;   ///< where each sample goes
    std::vector<int32_t> scored_ids;  ///< prompt tokens whose scores come
    std::vector<int32_t> lists;       ///< ScheduledSlot::scored_lists
    int32_t num_logprobs, num_prompt_logprobs;
    int32_t num_hidden;
    bool hidden_ends;
  };
  /// What a step in flight has on its way to the host or to the next stage.
  struct Staging {
    Buffer hidden_storage;
    TensorView hidden;                           ///< [max hidden rows, hidden_size] on the host, of the last stage
    TensorView hand_over;                        ///< [max tokens, hidden_size]
    parallel::Communicator::Transfer sent = 0;  ///< not waited for yet; 0: none
  };
  struct InFlight {
    Ticket ticket;
    uint64_t step_id;
    std::vector<Wanted> wanted;  ///< in plan order
    StepOutputShape shape;
    Stream::Event event;
    OpTimes op_times_before;
    std::optional<OpTimes> op_times = {};  ///< where the step was done when launch() returned: others may follow it
  };
  void apply(const StepPlan& plan, int flight);
  void enter(const NewSlot& slot, int flight);
  void refresh_counts(const StepPlan& plan);
  void run(const StepPlan& plan, int flight);
  void run_layers(const StepTensors& step);
  void receive_hidden(int64_t num_tokens);
  void hand_over(int64_t num_tokens, Staging& staging);
  int flight_of(Ticket ticket) const { return static_cast<int>(ticket % limits_.max_steps_in_flight); }
  int64_t take_scores(const Wanted& wanted, const InFlight& flight, int64_t scored_row, StepResult::Slot& filled) const;
  void take_hidden(const Wanted& wanted, const TensorView& rows, StepResult::Slot& filled);
  void keep(const Wanted& wanted, const std::vector<SampledToken>& tokens);

  Ops& ops_;
  Decoder& model_;
  RunnerLimits limits_;
  std::unique_ptr<parallel::Communicator> alone_;
  parallel::Communicator &tp_, &pp_;
  KvCache kv_;
  Buffer activation_storage_, hand_over_storage_;
  Activations activations_;
  SlotTables tables_;
  StepInput input_;
  StepOutput output_;
  StepGraphs layer_graphs_, head_graphs_;
  StepGraphFigures figures_;  // but for sizes
  std::vector<SlotState> slots_;
  std::vector<HiddenMean> hidden_;  // by slot, of its occupant
  std::vector<Staging> staging_;    // by flight
  std::deque<InFlight> in_flight_;
  Ticket next_ticket_ = 1;
};

}  // namespace tokenmill
