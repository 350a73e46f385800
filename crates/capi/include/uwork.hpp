// SPDX-License-Identifier: MIT OR Apache-2.0
//
// uwork.hpp: uwork for C++17. Queues, items and jobs that end with their scope; see uwork.h for what they do.
//
// What cannot be done is an uwork::error. An exception that leaves the function of an item ends the process
// (std::terminate); one that leaves a job comes out of its join().
#ifndef UWORK_HPP
#define UWORK_HPP

#include <cerrno>
#include <chrono>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <system_error>
#include <type_traits>
#include <utility>

#include "uwork.h"

namespace uwork {

// What was wrong; its code() is the errno.
class error : public std::system_error {
public:
	explicit error(int errno_value)
		: std::system_error(errno_value, std::generic_category(), uw_error_text())
	{
	}
};

// The answer, if it is one.
inline int checked(int answer)
{
	if (answer < 0)
		throw error(-answer);
	return answer;
}

inline std::uint64_t nanoseconds(std::chrono::nanoseconds delay)
{
	return delay.count() > 0 ? static_cast<std::uint64_t>(delay.count()) : 0;
}

template <typename T>
class job;

// A queue. Its end waits until everything that was queued has run.
class queue {
public:
	explicit queue(const char *name, unsigned flags = UW_UNBOUND, unsigned max_active = 0)
		: queue_(uw_queue_create(name, flags, max_active))
	{
		if (queue_ == nullptr)
			throw error(errno);
	}

	queue(const char *name, const uw_queue_attrs &attrs) : queue_(uw_queue_create_attrs(name, &attrs))
	{
		if (queue_ == nullptr)
			throw error(errno);
	}

	// One of the ready-made queues, which stay.
	static queue system(enum uw_system_queue which)
	{
		uw_queue *known = ::uw_system_queue(which);

		if (known == nullptr)
			throw error(errno);
		return queue(known, false);
	}

	queue(queue &&other) noexcept
		: queue_(std::exchange(other.queue_, nullptr)), owned_(other.owned_)
	{
	}

	queue &operator=(queue &&other) noexcept
	{
		std::swap(queue_, other.queue_);
		std::swap(owned_, other.owned_);
		return *this;
	}

	queue(const queue &) = delete;
	queue &operator=(const queue &) = delete;

	~queue()
	{
		// Inside one of its own items a queue cannot end: it stays.
		if (queue_ != nullptr && owned_)
			static_cast<void>(uw_queue_destroy(queue_));
	}

	void flush()
	{
		checked(uw_queue_flush(queue_));
	}

	// False: not everything has run by then.
	bool flush_for(std::chrono::nanoseconds limit)
	{
		int answer = uw_queue_flush_timeout(queue_, nanoseconds(limit));

		return answer == -ETIMEDOUT ? false : (checked(answer), true);
	}

	void drain()
	{
		checked(uw_queue_drain(queue_));
	}

	void set_max_active(unsigned max_active)
	{
		checked(uw_queue_set_max_active(queue_, max_active));
	}

	void set_scope(uw_scope scope)
	{
		checked(uw_queue_set_scope(queue_, scope));
	}

	// Queues a function; its result, or its exception, is the job's.
	template <typename F>
	auto spawn(F function) -> job<std::invoke_result_t<F>>;

	uw_queue *get() const noexcept
	{
		return queue_;
	}

private:
	queue(uw_queue *known, bool owned) noexcept : queue_(known), owned_(owned)
	{
	}

	uw_queue *queue_;
	bool owned_ = true;
};

// An item: a function that is called once for each time that it was queued, and never twice at once. It cannot be
// moved. Its end takes it off its queue and waits for a run that is going on; so it must not end in its own function.
class work {
public:
	explicit work(std::function<void()> function) : frame_{ {}, std::move(function) }
	{
		uw_work_init(&frame_, run);
	}

	work(const work &) = delete;
	work &operator=(const work &) = delete;

	~work()
	{
		static_cast<void>(uw_work_disable_sync(&frame_));
	}

	// False: it was pending already, and the coming run sees what was written before.
	bool enqueue(const queue &on)
	{
		return checked(uw_queue_work(on.get(), &frame_)) > 0;
	}

	bool enqueue_on(int cpu, const queue &on)
	{
		return checked(uw_queue_work_on(on.get(), cpu, &frame_)) > 0;
	}

	bool flush()
	{
		return checked(uw_work_flush(&frame_)) > 0;
	}

	bool cancel()
	{
		return checked(uw_work_cancel(&frame_)) > 0;
	}

	bool cancel_sync()
	{
		return checked(uw_work_cancel_sync(&frame_)) > 0;
	}

	bool is_pending() const
	{
		return checked(uw_work_is_pending(&frame_)) > 0;
	}

	uw_work *get() noexcept
	{
		return &frame_;
	}

private:
	struct frame : uw_work {
		std::function<void()> function;
	};

	static void run(uw_work *item) noexcept
	{
		static_cast<frame *>(item)->function();
	}

	frame frame_;
};

// An item with a timer.
class delayed_work {
public:
	explicit delayed_work(std::function<void()> function, std::chrono::nanoseconds slack = {})
		: frame_{ {}, std::move(function) }
	{
		uw_delayed_work_init(&frame_, run, 0, nanoseconds(slack));
	}

	delayed_work(const delayed_work &) = delete;
	delayed_work &operator=(const delayed_work &) = delete;

	~delayed_work()
	{
		static_cast<void>(uw_work_disable_sync(&frame_.work));
	}

	bool enqueue(const queue &on, std::chrono::nanoseconds delay)
	{
		return checked(uw_queue_delayed_work(on.get(), &frame_, nanoseconds(delay))) > 0;
	}

	// True: it was pending, and is for the new time.
	bool modify(const queue &on, std::chrono::nanoseconds delay)
	{
		return checked(uw_mod_delayed_work(on.get(), &frame_, nanoseconds(delay))) == 0;
	}

	bool flush()
	{
		return checked(uw_delayed_work_flush(&frame_)) > 0;
	}

	bool cancel()
	{
		return checked(uw_work_cancel(&frame_.work)) > 0;
	}

	bool cancel_sync()
	{
		return checked(uw_work_cancel_sync(&frame_.work)) > 0;
	}

	bool is_pending() const
	{
		return checked(uw_work_is_pending(&frame_.work)) > 0;
	}

private:
	struct frame : uw_delayed_work {
		std::function<void()> function;
	};

	static void run(uw_work *item) noexcept
	{
		static_cast<frame *>(uw_to_delayed_work(item))->function();
	}

	frame frame_;
};

// A function on its way. Its end lets it go on unwatched.
template <typename T>
class job {
public:
	job(job &&other) noexcept
		: job_(std::exchange(other.job_, nullptr)), call_(std::move(other.call_))
	{
	}

	job &operator=(job &&other) noexcept
	{
		std::swap(job_, other.job_);
		std::swap(call_, other.call_);
		return *this;
	}

	job(const job &) = delete;
	job &operator=(const job &) = delete;

	~job()
	{
		uw_job_detach(job_);
	}

	// Waits for it; runs it here if it has not started and its queue allows that. Once.
	T join()
	{
		int answer = uw_job_join(std::exchange(job_, nullptr), nullptr);

		if (answer == -ECANCELED || answer == -ESHUTDOWN)
			call_->queued.reset();
		checked(answer);
		if (call_->failure)
			std::rethrow_exception(call_->failure);
		if constexpr (!std::is_void_v<T>)
			return std::move(*call_->result);
	}

	// True: it was taken back before it started.
	bool cancel()
	{
		bool taken = checked(uw_job_cancel(job_)) > 0;

		if (taken)
			call_->queued.reset();
		return taken;
	}

	bool is_finished() const
	{
		return checked(uw_job_is_finished(job_)) > 0;
	}

private:
	friend class queue;

	struct nothing {
	};

	struct call {
		virtual ~call() = default;
		virtual T invoke() = 0;

		std::optional<std::conditional_t<std::is_void_v<T>, nothing, T>> result{};
		std::exception_ptr failure{};
		// The queue's half, until it runs or is taken back.
		std::shared_ptr<call> queued{};
	};

	// Any function that can be moved.
	template <typename F>
	struct call_of final : call {
		explicit call_of(F f) : function(std::move(f))
		{
		}

		T invoke() override
		{
			return function();
		}

		F function;
	};

	static void *run(void *arg) noexcept
	{
		std::shared_ptr<call> half = std::move(static_cast<call *>(arg)->queued);
		call &mine = *half;

		try {
			if constexpr (std::is_void_v<T>)
				mine.invoke();
			else
				mine.result.emplace(mine.invoke());
		} catch (...) {
			mine.failure = std::current_exception();
		}
		return nullptr;
	}

	job(uw_job *known, std::shared_ptr<call> mine) noexcept : job_(known), call_(std::move(mine))
	{
	}

	uw_job *job_;
	std::shared_ptr<call> call_;
};

template <typename F>
auto queue::spawn(F function) -> job<std::invoke_result_t<F>>
{
	using result = job<std::invoke_result_t<F>>;
	std::shared_ptr<typename result::call> mine =
		std::make_shared<typename result::template call_of<F>>(std::move(function));

	mine->queued = mine;
	uw_job *known = uw_queue_spawn(queue_, result::run, mine.get());
	if (known == nullptr) {
		mine->queued.reset();
		throw error(errno);
	}
	return result(known, std::move(mine));
}

// Tells the pool that the item waits while `function` runs.
template <typename F>
auto blocking(F function) -> std::invoke_result_t<F>
{
	using result = std::invoke_result_t<F>;

	struct call {
		F &function;
		std::exception_ptr failure;
		std::optional<std::conditional_t<std::is_void_v<result>, int, result>> value;
	} mine{ function, nullptr, std::nullopt };

	checked(uw_blocking(
		[](void *arg) noexcept {
			call &here = *static_cast<call *>(arg);

			try {
				if constexpr (std::is_void_v<result>)
					here.function();
				else
					here.value.emplace(here.function());
			} catch (...) {
				here.failure = std::current_exception();
			}
		},
		&mine));
	if (mine.failure)
		std::rethrow_exception(mine.failure);
	if constexpr (!std::is_void_v<result>)
		return std::move(*mine.value);
}

} // namespace uwork

#endif
