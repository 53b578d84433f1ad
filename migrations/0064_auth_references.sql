-- What is looked through when a flow or a user is deleted, so that neither takes longer the more there are.

create index {{prefix}}one_time_tokens_flow on {{prefix}}one_time_tokens (flow_state_id)
  where flow_state_id is not null;
create index {{prefix}}flow_states_user on {{prefix}}flow_states (user_id)
  where user_id is not null;
create index {{prefix}}flow_states_linking on {{prefix}}flow_states (linking_user_id)
  where linking_user_id is not null;
