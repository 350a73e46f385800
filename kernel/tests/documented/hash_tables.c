// SPDX-License-Identifier: MIT OR Apache-2.0
/* A hash table of sessions with references: a design without an IDR. */
#include <linux/hashtable.h>
#include <linux/jhash.h>
#include <linux/kref.h>
#include <linux/module.h>
#include <linux/slab.h>
#include <linux/spinlock.h>

struct peer {
	u32 id;
	struct kref ref;
	struct hlist_node node;
	struct rcu_head rcu;
};

static DEFINE_HASHTABLE(peers, 4);
static DEFINE_SPINLOCK(peers_lock);
static atomic_t next_id = ATOMIC_INIT(0);
static int released;

static void peer_release(struct kref *ref)
{
	struct peer *peer = container_of(ref, struct peer, ref);

	spin_lock(&peers_lock);
	hash_del_rcu(&peer->node);
	spin_unlock(&peers_lock);
	released++;
	kfree_rcu(peer, rcu);
}

static struct peer *peer_add(void)
{
	struct peer *peer = kzalloc(sizeof(*peer), GFP_KERNEL);

	if (!peer)
		return NULL;
	kref_init(&peer->ref);
	peer->id = atomic_inc_return(&next_id);
	spin_lock(&peers_lock);
	hash_add_rcu(peers, &peer->node, peer->id);
	spin_unlock(&peers_lock);
	return peer;
}

static struct peer *peer_get(u32 id)
{
	struct peer *peer;

	rcu_read_lock();
	hash_for_each_possible_rcu(peers, peer, node, id) {
		if (peer->id == id && kref_get_unless_zero(&peer->ref)) {
			rcu_read_unlock();
			return peer;
		}
	}
	rcu_read_unlock();
	return NULL;
}

static int __init peers_init(void)
{
	struct peer *peer;
	int i;

	hash_init(peers);
	for (i = 0; i < 50; i++)
		if (!peer_add())
			return -ENOMEM;
	peer = peer_get(17);
	if (!peer || peer->id != 17 || kref_read(&peer->ref) != 2)
		return -EINVAL;
	kref_put(&peer->ref, peer_release);
	if (peer_get(51))
		return -EINVAL;
	return 0;
}

static void __exit peers_exit(void)
{
	struct hlist_node *next;
	struct peer *peer;
	int bkt;

	hash_for_each_safe(peers, bkt, next, peer, node)
		kref_put(&peer->ref, peer_release);
	rcu_barrier();
	if (hash_empty(peers) && released == 50 && jhash_1word(1, 2) == jhash_1word(1, 2))
		pr_info("hash table: passed\n");
}

module_init(peers_init);
module_exit(peers_exit);
MODULE_LICENSE("GPL");
