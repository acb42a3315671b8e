// Calls a SavedModel from many threads, with batching as in TF Serving: its C++ loader, Session::Run
// and SharedBatchScheduler, the scheduler behind `--batching_parameters_file`. HTTP and gRPC are not
// included. The process runs no Python.
//
//   batched_serving EXPORT SIGNATURE INPUT TEXTS CLIENTS SECONDS MAX_BATCH_SIZE
//                   BATCH_TIMEOUT_MICROS NUM_BATCH_THREADS [OP_LIBRARY...]
//
// TEXTS is a file with one text per line. Each client sends its next text after receiving an answer.
// MAX_BATCH_SIZE 1 runs each request in its client's thread, as TF Serving without batching.
// Prints one line of JSON: requests, seconds, CPU seconds, and the 50th and 99th percentiles of the
// latency in milliseconds.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <ctime>
#include <fstream>
#include <future>
#include <iostream>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tensorflow/c/c_api.h"
#include "tensorflow/cc/saved_model/loader.h"
#include "tensorflow/core/framework/tensor.h"
#include "tensorflow/core/kernels/batching_util/shared_batch_scheduler.h"
#include "tensorflow/core/public/session.h"
#include "tensorflow/core/public/session_options.h"

namespace {

using Clock = std::chrono::steady_clock;

void Check(const absl::Status& status) {
  if (!status.ok()) throw std::runtime_error(status.ToString());
}

void LoadOps(const char* library) {
  TF_Status* status = TF_NewStatus();
  TF_LoadLibrary(library, status);
  const std::string message = TF_GetCode(status) == TF_OK ? "" : TF_Message(status);
  TF_DeleteStatus(status);
  if (!message.empty()) throw std::runtime_error(std::string(library) + ": " + message);
}

struct Request : public tensorflow::serving::BatchTask {
  explicit Request(std::string text) : text(std::move(text)) {}
  size_t size() const override { return 1; }
  std::string text;
  std::promise<absl::Status> answered;
};

using Scheduler = tensorflow::serving::SharedBatchScheduler<Request>;
using Batch = tensorflow::serving::Batch<Request>;

class Model {
 public:
  Model(const std::string& path, const std::string& signature, const std::string& input) {
    Check(tensorflow::LoadSavedModel({}, {}, path, {"serve"}, &bundle_));
    const auto& found = bundle_.GetSignatures().at(signature);
    input_ = found.inputs().at(input).name();
    for (const auto& [name, info] : found.outputs()) outputs_.push_back(info.name());
  }

  absl::Status Run(const std::vector<const std::string*>& texts) const {
    tensorflow::Tensor given(tensorflow::DT_STRING, {static_cast<int64_t>(texts.size())});
    for (size_t i = 0; i < texts.size(); ++i) given.vec<tensorflow::tstring>()(i) = *texts[i];
    std::vector<tensorflow::Tensor> answers;
    return bundle_.GetSession()->Run({{input_, given}}, outputs_, {}, &answers);
  }

 private:
  tensorflow::SavedModelBundle bundle_;
  std::string input_;
  std::vector<std::string> outputs_;
};

std::vector<std::string> Lines(const std::string& path) {
  std::ifstream file(path);
  std::vector<std::string> lines;
  for (std::string line; std::getline(file, line);)
    if (!line.empty()) lines.push_back(line);
  if (lines.empty()) throw std::runtime_error(path + " has no texts");
  return lines;
}

void Main(char** argv, int argc) {
  for (int i = 10; i < argc; ++i) LoadOps(argv[i]);
  const Model model(argv[1], argv[2], argv[3]);
  const auto texts = Lines(argv[4]);
  const int num_clients = std::stoi(argv[5]);
  const double seconds = std::stod(argv[6]);
  const int max_batch_size = std::stoi(argv[7]);

  std::unique_ptr<tensorflow::serving::BatchScheduler<Request>> queue;
  std::shared_ptr<Scheduler> scheduler;
  if (max_batch_size > 1) {
    Scheduler::Options options;
    options.num_batch_threads = std::stoi(argv[9]);
    Check(Scheduler::Create(options, &scheduler));
    Scheduler::QueueOptions queue_options;
    queue_options.input_batch_size_limit = max_batch_size;
    queue_options.max_execution_batch_size = max_batch_size;
    queue_options.batch_timeout_micros = std::stoll(argv[8]);
    queue_options.max_enqueued_batches = 1000;
    const auto process = [&model](std::unique_ptr<Batch> batch) {
      std::vector<const std::string*> rows;
      for (int i = 0; i < batch->num_tasks(); ++i) rows.push_back(&batch->task(i).text);
      const absl::Status status = model.Run(rows);
      for (int i = 0; i < batch->num_tasks(); ++i)
        batch->mutable_task(i)->answered.set_value(status);
    };
    Check(scheduler->AddQueue(queue_options, process, &queue));
  }
  const auto ask = [&](const std::string& text) -> absl::Status {
    if (!queue) return model.Run({&text});
    auto request = std::make_unique<Request>(text);
    auto answered = request->answered.get_future();
    const absl::Status status = queue->Schedule(&request);
    return status.ok() ? answered.get() : status;
  };

  for (int i = 0; i < 20; ++i) Check(ask(texts[i % texts.size()]));  // warm
  std::vector<std::vector<double>> times(num_clients);
  std::vector<std::thread> clients;
  std::atomic<bool> failed = false;
  const auto start = Clock::now();
  const std::clock_t cpu = std::clock();
  for (int c = 0; c < num_clients; ++c)
    clients.emplace_back([&, c] {
      for (size_t i = c; !failed; i += num_clients) {
        const auto asked = Clock::now();
        if (std::chrono::duration<double>(asked - start).count() > seconds) return;
        const absl::Status status = ask(texts[i % texts.size()]);
        if (!status.ok() && !failed.exchange(true)) std::cerr << status.ToString() << "\n";
        times[c].push_back(std::chrono::duration<double>(Clock::now() - asked).count());
      }
    });
  for (auto& client : clients) client.join();
  const double wall = std::chrono::duration<double>(Clock::now() - start).count();
  const double cpu_seconds = double(std::clock() - cpu) / CLOCKS_PER_SEC;
  if (failed) throw std::runtime_error("a request failed");
  std::vector<double> all;
  for (const auto& each : times) all.insert(all.end(), each.begin(), each.end());
  std::sort(all.begin(), all.end());
  std::cout << "{\"requests\": " << all.size() << ", \"seconds\": " << wall
            << ", \"cpu_seconds\": " << cpu_seconds << ", \"p50_ms\": " << 1e3 * all[all.size() / 2]
            << ", \"p99_ms\": " << 1e3 * all[all.size() * 99 / 100] << "}\n";
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 10) {
    std::cerr << "usage: see the comment at the top of batched_serving.cc\n";
    return 2;
  }
  try {
    Main(argv, argc);
  } catch (const std::exception& error) {
    std::cerr << "batched_serving: " << error.what() << "\n";
    return 1;
  }
  return 0;
}
